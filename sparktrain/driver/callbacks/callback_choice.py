"""From the options of a call to the callbacks of its run."""

import os
from collections.abc import Mapping
from typing import Any, cast

from sparktrain.config.quantities import seconds
from sparktrain.config.tracking_options import URI_VARIABLE, callbacks, notice, tracking
from sparktrain.tracking.mlflow_tracker import MLflowTracker
from sparktrain.tracking.notice import NoticeSender

DEFAULT_AFTER_S = 1800.0


def callbacks_of(arguments: Mapping[str, Any]) -> tuple[Any, ...]:
    """The objects that learn about a run, from its options by name. Raises SpecError."""
    chosen_callbacks = list(callbacks(arguments.get("callbacks") or ()))
    if (options := tracking(arguments.get("tracking") or "none")) is not None:
        chosen_callbacks.append(MLflowTracker(options, options.address(os.environ.get(URI_VARIABLE, ""))))
    if (target := notice(arguments.get("notify") or "none")) is not None:
        after_s = cast(float, seconds(arguments.get("notify_after", DEFAULT_AFTER_S), "notify_after"))
        chosen_callbacks.append(NoticeSender(target, after_s))
    return tuple(chosen_callbacks)
