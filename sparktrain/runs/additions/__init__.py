"""What users add to a run directory: trials of a running sweep, and notes and tags of trials."""
