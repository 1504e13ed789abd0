"""Options and specifications of runs, and the files and texts from which they are read."""
