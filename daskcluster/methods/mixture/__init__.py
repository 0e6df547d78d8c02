"""Gaussian mixtures by truncated variational EM."""
