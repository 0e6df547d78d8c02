"""Clustering of what keeps coming: sources, a ledger of what was folded, and the loop around them."""
