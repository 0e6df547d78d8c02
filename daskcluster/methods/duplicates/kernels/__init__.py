"""Compiled loops of near-duplicates."""
