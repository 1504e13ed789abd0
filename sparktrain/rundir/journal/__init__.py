"""The journal of a run: its format, its one writer, and its readers."""
