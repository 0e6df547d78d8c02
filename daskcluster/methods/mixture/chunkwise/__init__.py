"""Truncated E-steps of a chunk, and what they bring back."""
