"""The words for how a run stands. The command line loads them for its help, and nothing else with them."""

STATES = ("running", "driver gone", "succeeded", "failed", "stopped", "lost")
"""The states of runs that can be read."""
UNREADABLE = "unreadable"
"""The state of a run that is corrupt, or of another version."""
