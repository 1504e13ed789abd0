"""A run directory as data: its results, its plan, what it holds of each trial, and its upkeep."""
