"""How much of its undisturbed pace a gang on three hosts keeps while it loses processes, hosts and links."""
