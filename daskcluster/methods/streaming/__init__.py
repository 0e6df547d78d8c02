"""K-means and Gaussian mixtures of streams of rows."""
