"""Engines: passes on threads of this process, or on the workers of a Dask cluster."""
