"""Models, the results of fits: small, free of data, saved as Zarr and JSON, never as a pickle."""
