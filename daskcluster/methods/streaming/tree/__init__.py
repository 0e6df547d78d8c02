"""Summary of a stream: a merge-and-reduce tree of coresets."""
