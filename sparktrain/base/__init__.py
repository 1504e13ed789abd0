"""Tools that every layer uses, and that know nothing of a run."""
