"""Several runs: the directory that holds them, and a row for each, which the command line and pages show."""
