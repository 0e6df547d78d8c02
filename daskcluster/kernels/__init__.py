"""Compiled loops over plain arrays; they import nothing of the package but each other."""
