"""The journal of a run: its file format, its writer, its readers, and its repair."""
