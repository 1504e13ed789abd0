"""What the command line calls, with narrow fakes in place of Spark and the runs themselves."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sparktrain.config.option_catalog import ResumeKeywords
from sparktrain.driver.options import RunOptions, SweepOptions
from sparktrain.ids import TrialId
from sparktrain.results.run_result import RunEnd
from sparktrain.results.sweep_result import SweepResult
from sparktrain.runs.sweep_outcome import SweepStatus
from sparktrain.runs.trial_result import TrialResult
from sparktrain.search.sampled_space import SampledSpace
from sparktrain.state.trial import TrialStatus

TRIAL = TrialResult(
    id=TrialId(0), status=TrialStatus.SUCCEEDED, params={"lr": 0.1}, metrics={"accuracy": 0.9}, seconds=2.0
)
RESULT = SweepResult(name="mnist", status=SweepStatus.SUCCEEDED, metric="accuracy", seconds=3.0, trials=(TRIAL,))


class Context:
    def __init__(self) -> None:
        self.py_files: list[str] = []

    def addPyFile(self, path: str) -> None:  # noqa: N802 - Spark's name
        self.py_files.append(path)


class Session:
    def __init__(self) -> None:
        self.sparkContext = Context()


class Edge:
    """What the command line calls: `sweep_target`, `run_target`, and the session that they make."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.sessions: list[tuple[str | None, dict[str, str], str]] = []
        self.session: Session | None = None
        self.nurseries: list[str] = []
        """What was done with processes that fork the agents of a local run."""
        self.ends: Callable[[], SweepResult] = lambda: RESULT

    def sweep_target(self, target: Any, space: Any, options: SweepOptions, **more: Any) -> SweepResult:
        assert self.session is None, "the session is made before the call is checked"
        tried = space if isinstance(space, SampledSpace) else list(space)
        self.calls.append({"target": target, "space": tried, "options": options, **more})
        with more["engine"]() as spark:
            assert spark is self.session or not self.sessions
            return self.ends()

    def run_target(self, target: Any, params: dict[str, Any], options: RunOptions, **more: Any) -> RunEnd:
        assert self.session is None, "the session is made before the call is checked"
        self.calls.append({"target": target, "params": params, "options": options, **more})
        with more["engine"]():
            return RunEnd(self.ends(), "/runs/big/model.keras")

    def resume_target(self, directory: str, keywords: ResumeKeywords, **more: Any) -> SweepResult | RunEnd:
        assert self.session is None, "the session is made before the run directory is looked at"
        self.calls.append({"directory": directory, "keywords": keywords, **more})
        with more["engine"]():
            end = self.ends()
            return end if end.name == "mnist" else RunEnd(end, None)

    @contextmanager
    def local_session(self, master: str | None, conf: dict[str, str], name: str, log: object) -> Iterator[Session]:
        self.sessions.append((master, conf, name))
        self.session = Session()
        yield self.session

    def start_nursery(self) -> None:
        self.nurseries.append("started")

    def wait_for_nursery(self) -> int:
        self.nurseries.append("ended")
        return 0

    def engine_of(self, spark: Any) -> Any:
        return spark

    @property
    def options(self) -> SweepOptions:
        options = self.calls[0]["options"]
        assert isinstance(options, SweepOptions)
        return options
