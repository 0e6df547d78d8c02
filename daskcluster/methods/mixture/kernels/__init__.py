"""Compiled loops of truncated E-steps."""
