"""A run directory in any store: its paths, its checkpoints, its journal and its reports."""
