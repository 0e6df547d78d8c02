"""E-steps of a chunk, and the statistics that they return."""
