"""One module for each comparison with other libraries: its cells, and what is shown of their records."""
