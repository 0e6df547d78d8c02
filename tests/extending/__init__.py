"""What can be added from outside the package, each in one file, checked as ours is."""
