"""Passes of kernel k-means over a chunk."""
