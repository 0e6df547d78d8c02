"""How long work takes on how many workers, and what holds it up: a model of measured costs."""
