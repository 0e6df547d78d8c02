"""Compiled loops of bounds on distances."""
