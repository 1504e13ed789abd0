"""What the command line calls, with narrow fakes in place of Spark and the runs themselves."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from sparktrain.base.ids import TrialId
from sparktrain.config.option_catalog import ResumeKeywords
from sparktrain.driver.agent_sources import LateAgents
from sparktrain.driver.options import RunOptions, SweepOptions
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


def composed(kind: str) -> Any:
    """A checked call, as far as commands look at it."""
    return SimpleNamespace(definition=SimpleNamespace(plan=SimpleNamespace(kind=kind)))


class Edge:
    """What the command line calls: the stages of a run, and the session that they make."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.sessions: list[tuple[str | None, dict[str, str], str]] = []
        self.session: Session | None = None
        self.nurseries: list[str] = []
        """What was done with processes that fork the agents of a local run."""
        self.ends: Callable[[], SweepResult] = lambda: RESULT

    def compose(self, target: Any, space: Any, options: SweepOptions | RunOptions) -> Any:
        assert self.session is None, "the session is made before the call is checked"
        tried = space if isinstance(space, SampledSpace) else list(space)
        self.calls.append({"target": target, "space": tried, "options": options})
        return composed(options.kind)

    def compose_again(self, directory: str, keywords: ResumeKeywords, extension: Any = None) -> Any:
        assert self.session is None, "the session is made before the run directory is looked at"
        self.calls.append({"directory": directory, "keywords": keywords, "extension": extension})
        return composed("sweep")

    def forecast(self, call: Any, slots: int | None) -> list[str]:
        return []

    def launch(self, call: Any, agents: LateAgents, display: Any) -> SweepResult:
        self.calls[-1] |= {"engine": agents.engine, "display": display}
        with agents.engine() as spark:
            assert spark is self.session or not self.sessions
            end = self.ends()
        if end.name != "mnist":
            call.definition.plan.kind = "run"
        return end

    def run_end(self, call: Any, end: SweepResult) -> RunEnd:
        return RunEnd(end, "/runs/big/model.keras")

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
