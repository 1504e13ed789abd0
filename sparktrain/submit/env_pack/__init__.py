"""Makes the archive that executors run from: an interpreter and packages, for nodes that have no Python of ours."""
