"""Chunkwise computations: pure functions from a chunk and parameters to mergeable statistics."""
