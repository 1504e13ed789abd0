"""What TensorBoard's own reader and its HParams page find in a folder of event files, without TensorFlow."""

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def _take_out() -> dict[str, types.ModuleType]:
    return {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == "tensorboard"}


@contextmanager
def _without_tensorflow() -> Iterator[None]:
    """TensorBoard keeps for good which TensorFlow it has found, and other tests of this process need the real one."""
    theirs = _take_out()
    sys.modules["tensorboard.compat.notf"] = types.ModuleType("tensorboard.compat.notf")
    try:
        yield
    finally:
        _take_out()
        sys.modules.update(theirs)


class BoardReader:
    """Everything in a folder, read once."""

    def __init__(self, folder: Path) -> None:
        with _without_tensorflow():
            self._read(folder)

    def _read(self, folder: Path) -> None:
        from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
        from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
        from tensorboard.context import RequestContext
        from tensorboard.plugins.base_plugin import TBContext
        from tensorboard.plugins.hparams.backend_context import Context
        from tensorboard.plugins.hparams.list_session_groups import Handler
        from tensorboard.util.tensor_util import make_ndarray

        self._events = EventMultiplexer(tensor_size_guidance={"scalars": 0}).AddRunsFromDirectory(str(folder))
        self._events.Reload()
        self._handler, self._make_ndarray = Handler, make_ndarray
        self._request = RequestContext()
        self._context = Context(TBContext(data_provider=MultiplexerDataProvider(self._events, str(folder))))

    def points(self, run: str, tag: str) -> list[tuple[int, float]]:
        """Steps and values of a scalar, in the order of the file."""
        return [(each.step, float(self._make_ndarray(each.tensor_proto))) for each in self._events.Tensors(run, tag)]

    def columns(self) -> dict[str, int]:
        """The columns of the HParams page: the type of each hyperparameter."""
        return {info.name: info.type for info in self._experiment().hparam_infos}

    def metrics(self) -> list[str]:
        """The metrics of the HParams page."""
        return [info.name.tag for info in self._experiment().metric_infos]

    def sessions(self) -> dict[str, tuple[dict[str, Any], int, dict[str, float]]]:
        """The rows of the HParams page by their names: hyperparameters, status, and metrics at their last step."""
        from tensorboard.plugins.hparams import api_pb2

        wanted = api_pb2.ListSessionGroupsRequest(
            start_index=0, slice_size=1000, allowed_statuses=api_pb2.Status.values(), include_metrics=True
        )
        for name in self.metrics():
            wanted.col_params.add().metric.tag = name
        rows = {}
        for group in self._handler(self._request, self._context, "", wanted).run().session_groups:
            cells = {name: getattr(value, str(value.WhichOneof("kind"))) for name, value in group.hparams.items()}
            values = {each.name.tag: each.value for each in group.sessions[0].metric_values}
            rows[group.name] = (cells, group.sessions[0].status, values)
        return rows

    def _experiment(self) -> Any:
        found = self._context.hparams_metadata(self._request, "")
        return self._context.experiment_from_metadata(self._request, "", True, found, [])
