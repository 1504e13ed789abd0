"""A run directory as something to keep in order: checks, repairs, removals of checkpoints and of whole runs."""
