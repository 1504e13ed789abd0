"""Builds the archive that executors run from: an interpreter and packages, for nodes without a suitable Python."""
