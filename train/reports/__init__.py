"""Reports of runs: metrics, figures and Markdown pages."""
