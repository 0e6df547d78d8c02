"""K-means and mixtures of rows that keep coming."""
