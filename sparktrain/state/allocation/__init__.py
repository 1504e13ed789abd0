"""Which run of a pool gets which agents, where several runs are on. Pure."""
