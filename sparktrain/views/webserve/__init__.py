"""What TensorBoard of a run and its live page share: a process that serves, its tokens, its limits for strangers."""
