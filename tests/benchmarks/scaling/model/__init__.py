"""A model of the time of a fit by number of workers, and of its bottleneck, from measured rates."""
