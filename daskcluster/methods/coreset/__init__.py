"""Lightweight coresets: few weighted rows that stand for all, and k-means of them."""
