"""Compiled loops that evaluate Gram functions."""
