"""Stochastic backward Euler: implicit steps that leave poor local minima."""
