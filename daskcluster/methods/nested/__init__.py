"""K-means by nested mini-batches, each of which contains the one before."""
