"""What the pages of a run share, of TensorBoard and our own: a process that serves, its token and its limits."""
