"""What all rooms need: limits, files that are files, text of strangers, the machine."""
