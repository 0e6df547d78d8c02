"""Compiled loops of mini-batch steps."""
