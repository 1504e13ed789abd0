"""TensorBoard of a run: its event files in a local folder, and a server behind a token."""
