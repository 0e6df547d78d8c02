"""Compiled loops over plain arrays; these modules import nothing else of the package."""
