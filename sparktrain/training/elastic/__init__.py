"""What all members of a gang do together between two steps. It knows no framework."""
