"""One module for each comparison: its cells, and what is shown of their records."""
