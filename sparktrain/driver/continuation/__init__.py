"""Calls that continue from a run that exists: resuming, extending, refitting, and starting with its results."""
