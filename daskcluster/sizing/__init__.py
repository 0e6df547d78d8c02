"""How long work will take on how many workers, and what holds it up: a model of measured costs."""
