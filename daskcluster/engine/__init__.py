"""Where passes run: threads of this process, or the workers of a Dask cluster."""
