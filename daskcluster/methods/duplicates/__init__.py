"""Near-duplicates: all pairs of rows that are closer than a threshold, and groups of them."""
