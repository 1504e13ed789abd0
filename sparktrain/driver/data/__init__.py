"""The datasets of a run on the driver: planned, written, found again."""
