"""Two ways to call a training function, in this process and in a member, with results that can be compared."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
import msgspec

from sparktrain.base.clock import SystemClock
from sparktrain.base.ids import AgentId, Generation, Member, RunId, TrialId
from sparktrain.config.store_address import StoreAddress
from sparktrain.executor.member_runner import MemberSession
from sparktrain.executor.memory_holder import MemoryHolder
from sparktrain.executor.snapshots import CheckpointStorer
from sparktrain.executor.spark_task import Placement
from sparktrain.executor.zygote_process import ZygoteProcess
from sparktrain.protocol import messages as m
from sparktrain.protocol.member_call import MemberCall
from sparktrain.protocol.pipe_messages import LocalCode
from sparktrain.rundir.checkpoints import delete, manifest_of, placed
from sparktrain.rundir.layout import RunLayout
from sparktrain.state.checkpoint_history import Checkpoint, CheckpointHistory
from sparktrain.state.outcome import Failure, Outcome
from sparktrain.store.url import open_store
from sparktrain.testing import local_context

RUN = RunId("local")
TRIAL = TrialId(0)
SEED = 11
NOWHERE = Placement(0, "host", 0, 0, None, (), (), {})


@dataclass
class Seen:
    """The result of one call."""

    reports: list[tuple[int, str]] = field(default_factory=list)
    """Metrics as text: NaN is not equal to itself."""
    metrics: dict[str, float] | None = None
    failure: tuple[str, str, str] | None = None
    notices: tuple[str, ...] = ()
    checkpoints: list[Any] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)


def _seen(outcome: Outcome, reports: list[Any], checkpoints: list[Checkpoint], store: Any, home: Path) -> Seen:
    files = [path for path in (home / "files").rglob("*") if path.is_file()]
    return Seen(
        [(each.step, repr(each.metrics)) for each in reports],
        outcome.metrics,
        _failure(outcome.failure),
        outcome.notices,
        [_checkpoint(store, each) for each in checkpoints],
        {path.name: path.read_text() for path in files} | {"model": str((home / "model.keras").exists())},
    )


def _failure(failure: Failure | None) -> tuple[str, str, str] | None:
    return None if failure is None else (failure.kind.value, failure.summary, failure.traceback)


def _checkpoint(store: Any, each: Checkpoint) -> Any:
    shards = manifest_of(store, each).shards
    return (each.generation, each.step, each.keep, each.score, [(one.name, one.size, one.sha256) for one in shards])


class Here:
    """Calls in this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def call(self, train: Callable[..., Any], params: dict[str, Any], metric: str | None = None) -> Seen:
        with local_context(params, directory=self._folder, metric=metric, seed=SEED) as ctx:
            home = Path(ctx.log_dir).parent
            outcome = ctx.outcome(train)
            return _seen(
                outcome,
                list(ctx.reports),
                ctx._run.checkpoints.retained,
                open_store(StoreAddress(str(self._folder))),
                home,
            )


class InMember:
    """Calls in the child of a zygote; this class stands for agent and coordinator."""

    def __init__(self, zygote: ZygoteProcess, folder: Path) -> None:
        self._zygote = zygote
        self._folder = folder
        self._address = StoreAddress(str(folder / "store"))
        self._store = open_store(self._address)
        self._layout = RunLayout(RUN)
        self._checkpoints = CheckpointHistory()
        self._generation = 0
        self._store.put_if_absent(self._layout.spec, b"{}")
        self._keeper = CheckpointStorer(folder / "agent", AgentId("agent"), self._post)
        self._posted: list[Any] = []

    async def call(self, train: Callable[..., Any], params: dict[str, Any], metric: str | None = None) -> Seen:
        self._generation += 1
        self._posted.clear()
        member = Member(RUN, TRIAL, Generation(self._generation))
        home = self._folder / f"home-{self._generation}"
        code = self._folder / f"function-{self._generation}"
        code.write_bytes(cloudpickle.dumps(train))
        sent = msgspec.json.decode(msgspec.json.encode(params))
        start = m.StartMember(
            member=member,
            call=MemberCall(params=sent, seed=SEED, metric=metric),
            store=self._address,
            checkpoint=self._checkpoints.newest,
        )
        local = LocalCode(str(code), False, ())
        session = MemberSession(start, local, home, SystemClock(), self._keeper, MemoryHolder(None))
        child = await self._zygote.fork()
        async with asyncio.timeout(90):
            await session.train(child, NOWHERE, self._post)
        reports = [each for post in self._posted if isinstance(post, m.MemberReported) for each in post.reports]
        (outcome,) = [post.outcome for post in self._posted if isinstance(post, m.MemberEnded)]
        return _seen(outcome, reports, self._checkpoints.retained, self._store, home)

    def _post(self, message: m.FromAgent) -> None:
        self._posted.append(message)
        if isinstance(message, m.CheckpointStored):
            checkpoint = placed(self._layout, message.member, message.checkpoint)
            assert checkpoint is not None
            doomed = self._checkpoints.acknowledge(checkpoint)
            self._keeper.acknowledged(m.AckCheckpoint(message.member, checkpoint))
            for each in doomed:
                delete(self._store, each)
