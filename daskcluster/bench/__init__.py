"""Comparisons with other libraries on one machine, their results, and the page that shows them."""
