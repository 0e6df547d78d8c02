"""Two levels of k-means: coarse cells, and clusters within each."""
