"""The backend of a run, where only its executors show which one they have."""

from collections.abc import Callable
from dataclasses import replace

from sparktrain.cluster import preflight
from sparktrain.config.environment import KERAS_BACKEND
from sparktrain.driver.backend_choice import HOROVOD, check_needed_keras, check_reported_keras
from sparktrain.driver.prepare.attached_run import AttachedRun


def with_known_backend(run: AttachedRun, reported: Callable[[], dict[str, str]], *, inherits: bool) -> AttachedRun:
    """The run with a backend that its agents have; `reported` is what the first one reports, and may block.

    Raises ResourceError where they lack that of the run, and SpecError where Keras has another backend there.
    """
    spec = run.definition.spec
    preflight.check_executors(spec.gang, lambda package: package in reported())
    keras = run.call.keras
    if (keras.expected[0] or keras.needed) and not inherits:
        backend = reported().get(KERAS_BACKEND, "")
        check_reported_keras(keras.expected, backend)
        check_needed_keras(spec.gang, keras.needed, backend)
    choice = run.call.choice
    if choice is None or not choice.tentative:
        return run
    return replace(run, call=run.call.with_backend(choice.settled(HOROVOD in reported())))
