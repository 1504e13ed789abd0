"""From a call to an owned run, in stages: checked, attached to its directory, named, and owned."""
