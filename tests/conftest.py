"""Settings of all rings."""

from hypothesis import settings

settings.register_profile("sparktrain", deadline=None)  # an example's time is the machine's matter, not the product's
settings.load_profile("sparktrain")
