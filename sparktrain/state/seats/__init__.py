"""The seats of a gang: who has one, and what changes that."""
