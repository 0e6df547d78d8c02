"""Partitions of an index: cells of nearly equal sizes, with copies of rows in second-best cells."""
