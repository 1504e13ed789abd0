"""Which trials are stopped before their end, because they cannot win: pure rules over what trials report."""
