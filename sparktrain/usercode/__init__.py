"""The user's training function: found, checked, and serialized with the modules that it imports."""
