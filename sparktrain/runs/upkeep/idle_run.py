"""Whether a run directory may be changed: only where no driver owns the run."""

from sparktrain import formatting
from sparktrain.clock import Clock
from sparktrain.errors import RunDirectoryError
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.view import RunState, RunView


def check_idle(view: RunView, place: RunLocation, clock: Clock, silent_s: float) -> None:
    """A driver that does not answer from this host must have been silent for `silent_s` seconds.

    Blocks on the store. Raises RunDirectoryError when a driver owns the run, or may own it.
    """
    driver = view.driver.identity
    if view.state is RunState.RUNNING:
        raise RunDirectoryError(
            f"run directory {view.directory} is in use by {driver}: stop that process, or wait for its end"
        )
    # A driver that starts writes run.json first, and its first record soon after.
    last = view.times.last_record or place.store.stat(place.layout.spec).modified
    found_s = clock.wall() - last
    if view.state is RunState.GONE and found_s < silent_s:
        raise RunDirectoryError(
            f"run directory {view.directory} may be in use: its driver ({driver or 'unknown'}) does not answer "
            f"from here, but wrote a record {formatting.ago(found_s)}; resume the run, or pass --older-than "
            f"{max(1, int(found_s))}s when you know that no driver runs"
        )
