"""Reports of runs: tables, figures, Markdown and HTML."""
