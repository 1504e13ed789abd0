"""The gang of one trial: its members, their progress, and its end."""
