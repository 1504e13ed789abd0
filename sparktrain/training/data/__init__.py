"""Each member's share of the data, in the same order after every restart."""
