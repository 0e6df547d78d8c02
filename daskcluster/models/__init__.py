"""What a fit leaves behind: small, free of data, saved as Zarr and JSON, never as a pickle."""
