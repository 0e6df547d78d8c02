"""Storage: locations, atomic files, documents, checkpoints and leases."""
