"""Moments of the coordinator's clock; None for one that has not come. Pure."""


def since(before: float | None, holds: bool, at: float) -> float | None:
    """Since when a condition holds that holds, or not, at `at`."""
    if not holds:
        return None
    return at if before is None else before


def later(moment: float | None, seconds: float) -> float | None:
    """The moment after the coordinator was suspended for `seconds`: what it waits for has not had that time."""
    return None if moment is None else moment + seconds
