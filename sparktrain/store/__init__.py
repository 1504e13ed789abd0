"""Storage that outlives the processes of a run: the contract of a store and its implementations."""
