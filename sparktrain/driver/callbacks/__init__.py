"""The callbacks of a run: which it has, and what they learn from its state."""
