"""The examination of a cluster before a run."""
