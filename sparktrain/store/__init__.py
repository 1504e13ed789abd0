"""What outlives the processes of a run: the contract of a store, its implementations, and every path of a run."""
