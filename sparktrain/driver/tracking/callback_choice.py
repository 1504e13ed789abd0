"""From the options of a call to the callbacks of its run."""

import os
from collections.abc import Sequence
from typing import Any

from sparktrain.config.tracking_options import URI_VARIABLE, TrackingKeywords
from sparktrain.driver.tracking.mlflow_tracker import MLflowTracker
from sparktrain.driver.tracking.notice import NoticeSender


def callbacks_of(keywords: TrackingKeywords, callbacks: Sequence[Any]) -> tuple[Any, ...]:
    """The objects that learn about a run: `callbacks`, and what its options ask for. Raises SpecError."""
    chosen_callbacks = list(callbacks)
    if (options := keywords.tracking) is not None:
        chosen_callbacks.append(MLflowTracker(options, options.address(os.environ.get(URI_VARIABLE, ""))))
    if keywords.notify is not None:
        chosen_callbacks.append(NoticeSender(keywords.notify, keywords.notify_after))
    return tuple(chosen_callbacks)
