"""K-means: Lloyd's algorithm, with bounds that save distances."""
