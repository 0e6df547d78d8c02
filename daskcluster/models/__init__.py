"""Models, the results of fits: small, without data, saved as Zarr and JSON, never as pickles."""
