"""What every room of train uses: command line, errors, files, optional packages."""
