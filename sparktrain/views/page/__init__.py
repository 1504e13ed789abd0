"""Live pages, each in a process of its own: of a run the views of its report, of a directory all its runs."""
