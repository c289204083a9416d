"""The task of several labels: any number of them for each photo."""
