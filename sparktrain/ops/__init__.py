"""A wing: the examination of a cluster, and recorded runs in virtual time."""
