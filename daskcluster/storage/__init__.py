"""All durable state: where it is, files that are whole or absent, documents, checkpoints, leases."""
