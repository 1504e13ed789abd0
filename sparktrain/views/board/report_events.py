"""Writes curves and hyperparameters of trials as event files, without TensorFlow, to a local folder.

Only modules of the package tensorboard that never look for TensorFlow are used: its own writer of event files would
import it wherever it is installed.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Struct

from sparktrain.state.trial import TrialStatus
from sparktrain.store.folder_removal import remove

CURVES = "sparktrain"
"""The folder of a trial with its reports, beside those that the trial itself writes: `0003/sparktrain`."""

ColumnValue = bool | float | str


class HParamColumn(Struct, frozen=True):
    """One hyperparameter: a column of the HParams page."""

    name: str
    kind: type[bool] | type[float] | type[str]
    listed: tuple[str, ...] = ()
    """Of a column of text: the values that a user can choose from, where they are known."""


class Point(NamedTuple):
    """One value of one metric of a trial."""

    name: str
    step: int
    time: float
    value: float


class _TrialFile:
    """The event file of one trial."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.compat.proto import event_pb2

        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / "events.out.tfevents.0.sparktrain"
        self._write([event_pb2.Event(file_version="brain.Event:2")])
        self.written: set[tuple[str, int]] = set()
        """Name and step of each point."""
        self.ended: TrialStatus | None = None

    def start(self, trial: int, params: Mapping[str, ColumnValue], at: float) -> None:
        """Write the hyperparameters."""
        from tensorboard.compat.proto import event_pb2
        from tensorboard.plugins.hparams import summary_v2

        summary = summary_v2.hparams_pb(dict(params), trial_id=f"trial {trial}", start_time_secs=at)
        self._write([event_pb2.Event(wall_time=at, summary=summary)])

    def add(self, points: Iterable[Point]) -> None:
        """Write the points that are new by name and step: a gang that restarts reports steps again."""
        from tensorboard.compat.proto import event_pb2
        from tensorboard.plugins.scalar.summary import scalar_pb

        events = []
        for name, step, time, value in points:
            if (name, step) not in self.written:
                self.written.add((name, step))
                events.append(event_pb2.Event(wall_time=time, step=step, summary=scalar_pb(name, value)))
        self._write(events)

    def end(self, status: TrialStatus, at: float) -> None:
        """Write how the trial ended."""
        from tensorboard.compat.proto import event_pb2
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

        statuses = {
            TrialStatus.SUCCEEDED: api_pb2.STATUS_SUCCESS,
            TrialStatus.PRUNED: api_pb2.STATUS_SUCCESS,  # it has a result, and TensorBoard has no better word
            TrialStatus.FAILED: api_pb2.STATUS_FAILURE,
            TrialStatus.LOST: api_pb2.STATUS_FAILURE,
        }
        info = plugin_data_pb2.SessionEndInfo(status=statuses.get(status, api_pb2.STATUS_UNKNOWN), end_time_secs=at)
        summary = _hparams_summary(metadata.SESSION_END_INFO_TAG, session_end_info=info)
        self._write([event_pb2.Event(wall_time=at, summary=summary)])
        self.ended = status

    def _write(self, events: "list[Any]") -> None:
        """Append events. The file is open only meanwhile: a run may have more trials than a process has files."""
        from tensorboard.summary.writer.record_writer import RecordWriter

        if events:
            with self._path.open("ab") as file:
                records = RecordWriter(file)
                for event in events:
                    records.write(event.SerializeToString())


class ReportEvents:
    """The event files of the trials of one run. For one thread at a time; a call blocks on the local disk alone."""

    def __init__(self, target: Path) -> None:
        """`target` is a folder that exists as long as this object: what a former one wrote is not continued."""
        self._target = target
        self._trials: dict[int, _TrialFile] = {}
        self._spaces = 0

    def space(self, columns: Iterable[HParamColumn], metrics: Iterable[str]) -> None:
        """Write the columns of the HParams page: TensorBoard then forgets those of a former call. Raises OSError."""
        from tensorboard.compat.proto import event_pb2
        from tensorboard.plugins.hparams import api_pb2, metadata

        metric_infos = [api_pb2.MetricInfo(name=api_pb2.MetricName(tag=name)) for name in metrics]
        experiment = api_pb2.Experiment(hparam_infos=map(_info, columns), metric_infos=metric_infos)
        # TensorBoard reads this once in a folder, and drops a folder that vanishes.
        remove(self._space_folder())
        self._spaces += 1
        file = _TrialFile(self._space_folder())
        file._write([event_pb2.Event(summary=_hparams_summary(metadata.EXPERIMENT_TAG, experiment=experiment))])

    def start(self, trial: int, params: Mapping[str, ColumnValue], at: float) -> None:
        """Start a trial, at `at` in seconds since 1970, unless it is there. Raises OSError."""
        if trial not in self._trials:
            self._trials[trial] = _TrialFile(self._folder(trial) / CURVES)
            self._trials[trial].start(trial, params, at)

    def add(self, trial: int, points: Iterable[Point]) -> None:
        """Add points of a trial that has started, each name and step once. Raises OSError."""
        self._trials[trial].add(points)

    def end(self, trial: int, status: TrialStatus, at: float) -> None:
        """Write how a trial that has started ended, at `at` in seconds since 1970, once. Raises OSError."""
        if self._trials[trial].ended is None:
            self._trials[trial].end(status, at)

    def names(self, trial: int) -> set[str]:
        """The metrics of a trial that has started."""
        return {name for name, _ in self._trials[trial].written}

    def ended(self, trial: int) -> TrialStatus | None:
        """The status with which the trial ended, as far as it is written."""
        return self._trials[trial].ended if trial in self._trials else None

    def forget(self, trial: int) -> None:
        """Remove what is written of a trial: it may start again."""
        if self._trials.pop(trial, None) is not None:
            # TensorBoard shows the steps of two files of a trial, and purges none that a restart reports again.
            remove(self._folder(trial) / CURVES)

    @property
    def trials(self) -> set[int]:
        """The trials that have started."""
        return set(self._trials)

    def _folder(self, trial: int) -> Path:
        return self._target / f"{trial:04d}"

    def _space_folder(self) -> Path:
        return self._target / f"{CURVES}-space-{self._spaces}"


def _info(column: HParamColumn) -> Any:
    from google.protobuf import struct_pb2
    from tensorboard.plugins.hparams import api_pb2

    kinds = {bool: api_pb2.DATA_TYPE_BOOL, float: api_pb2.DATA_TYPE_FLOAT64, str: api_pb2.DATA_TYPE_STRING}
    info = api_pb2.HParamInfo(name=column.name, type=kinds[column.kind])
    if column.listed:
        values = [struct_pb2.Value(string_value=value) for value in column.listed]
        info.domain_discrete.CopyFrom(struct_pb2.ListValue(values=values))
    return info


def _hparams_summary(tag: str, **content: Any) -> Any:
    from tensorboard.compat.proto import summary_pb2
    from tensorboard.plugins.hparams import metadata, plugin_data_pb2

    data = plugin_data_pb2.HParamsPluginData(version=metadata.PLUGIN_DATA_VERSION, **content)
    kind = metadata.create_summary_metadata(data)
    value = summary_pb2.Summary.Value(tag=tag, metadata=kind, tensor=metadata.NULL_TENSOR)
    return summary_pb2.Summary(value=[value])
