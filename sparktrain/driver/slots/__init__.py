"""The slots of a session: who holds them, and the pools that calls share."""
