"""Whether a run directory may be changed: only where no driver owns the run."""

from contextlib import suppress

from sparktrain.base import formatting
from sparktrain.errors import RunDirectoryError
from sparktrain.rundir.journal.reader import survey
from sparktrain.rundir.journal.removal import has_ended
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.view import RunState, RunView


def check_idle(view: RunView, place: RunLocation, silent_s: float) -> None:
    """A driver that does not answer from this host must have been silent for `silent_s` seconds, by the store's clock.

    Blocks on the store. Raises RunDirectoryError when a driver owns the run, or may own it.
    """
    driver = view.driver.identity
    if view.state is RunState.RUNNING:
        raise RunDirectoryError(
            f"run directory {view.directory} is in use by {driver}: stop that process, or wait for its end"
        )
    # What has tidied the run up is no driver, and has deposed the one before.
    is_tidied = driver is not None and driver.purpose != "" and has_ended(driver)
    if view.state is RunState.ENDED or view.driver.copied or is_tidied:
        return
    silence_s = place.store.now(place.layout.path) - _last_written(place)
    if silence_s < silent_s:
        raise RunDirectoryError(
            f"run directory {view.directory} may be in use: its driver ({driver or 'unknown'}) does not answer "
            f"from here, but wrote a record {formatting.ago(silence_s)}; resume the run, or pass --older-than "
            f"{max(1, int(silence_s))}s when you know that no driver runs"
        )


def _last_written(place: RunLocation) -> float:
    """When a driver has written last, by the store's clock. A driver that starts writes run.json first, and its first
    record soon after."""
    layout = place.layout
    listing = survey(place.store, layout.journal)
    paths = [layout.spec, *(layout.journal.term(term) for term in listing.terms[-1:])]
    paths += [layout.journal.batch(*max(listing.batches))] if listing.batches else []
    written = [0.0]
    for path in paths:
        with suppress(FileNotFoundError):
            written.append(place.store.stat(path).modified)
    return max(written)
