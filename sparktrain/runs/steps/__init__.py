"""Where the steps of gangs go, as text and as a trace."""
