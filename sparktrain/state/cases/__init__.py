"""Sets of parameters with several trials: which these are, and what comes of them together."""
