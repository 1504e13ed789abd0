"""Every path and every record of a run directory, in whatever store it is."""
