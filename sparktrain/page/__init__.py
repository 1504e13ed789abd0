"""The live page of a run: the views of its report, served while the run lasts, in a process of its own."""
