"""Kernel k-means: clusters in the space of a Gram function, or of a graph of neighbours."""
