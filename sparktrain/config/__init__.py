"""What a run is asked to be: frozen specifications, and the files and texts that they are read from."""
