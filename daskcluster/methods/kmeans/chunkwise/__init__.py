"""Passes of k-means over a chunk, with each kind of bounds."""
