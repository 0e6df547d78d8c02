"""Small weighted sets of rows that stand for large ones."""
