"""K-means by random mini-batches."""
