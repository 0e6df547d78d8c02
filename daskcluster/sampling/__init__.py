"""Draws rows of any dataset from a distribution that follows from one point, in one pass."""
