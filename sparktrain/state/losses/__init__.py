"""Lost agents and members: what is known of them, what restarts alone, and since when there are too few."""
