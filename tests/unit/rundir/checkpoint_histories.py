"""Histories of a trial's checkpoints: drivers, writers and deletions that take turns at each operation of the store.

All of them run the product's own code: a driver claims the journal, feeds the machine, writes its records, and then
performs its commands; a writer fetches, writes, and posts. It follows `ckpt_protocol_model` of the design, which models
the protocol.
"""

from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from sparktrain.base.ids import AgentId, Member
from sparktrain.errors import CheckpointError, DeposedError, JournalCorruptError, RunDirectoryError
from sparktrain.rundir import checkpoints as product
from sparktrain.rundir.journal.driver_identity import DriverIdentity
from sparktrain.rundir.journal.reader import read
from sparktrain.rundir.journal.writer import Journal
from sparktrain.state import agent_messages as m
from sparktrain.state import commands as do
from sparktrain.state import events as on
from sparktrain.state.checkpoint_history import Checkpoint, CheckpointHistory
from sparktrain.state.machine import Machine
from sparktrain.state.outcome import Failure, FailureKind, Outcome
from sparktrain.state.records import AnyRecord, DriverStarted, GangFormed
from sparktrain.state.recovery import fold
from sparktrain.state.sweep import Sweep
from tests.support.limits import run_limits
from tests.unit.rundir.snapshots import LAYOUT, TRIAL, content, draft, loaded, member
from tests.unit.store.gated import MemoryStore
from tests.unit.store.histories import Actor

ATTEMPTS = 3
STEPS = 6
RUN = member(1).run
LIMITS = run_limits(max_retries=1000)

T = TypeVar("T")


class Disk(MemoryStore):
    """A store in memory. A loss of power truncates every file that was not synced; a correct store has none."""

    syncs = True

    def __init__(self) -> None:
        super().__init__()
        self._at_risk: set[str] = set()

    def put_if_absent(self, path: str, data: bytes) -> bool:
        created = super().put_if_absent(path, data)
        if created and not self.syncs:
            self._at_risk.add(path)
        return created

    def lose_power(self) -> None:
        for path in self._at_risk & self.files.keys():
            self.files[path] = self.files[path][: len(self.files[path]) // 2]
        self._at_risk.clear()


class Driver:
    """A driver of the run: the product's machine and journal, and an agent that it replaces when it is lost."""

    def __init__(self, world: "World") -> None:
        self.inbox: deque[on.Event] = deque()
        self.writer: Writer | None = None
        """The writer of the newest gang."""
        self._number = len(world.drivers)
        self._world = world
        self._machine = Machine(lease_s=15.0)
        self._agents = 0

    def live(self, actor: Actor) -> None:
        who = DriverIdentity("host", self._number, 0.0, "0")
        try:
            self.journal, opened = patiently(lambda: Journal.claim(actor.store, LAYOUT.journal, who))
            began = DriverStarted(plan="", at=0.0)
            self.handle(on.RunStarted(0.0, RUN, LIMITS, opened.records, began))
            self.hire()
            while self._machine.sweep is not None:
                event = actor.gate("event", lambda: self.inbox.popleft() if self.inbox else None)
                if event is not None:
                    self.handle(event)
        except DeposedError:
            return

    def hire(self) -> None:
        """Replace the agent by a new one. The old one's member may not have noticed."""
        agent = AgentId(f"{self._number}-agent-{self._agents}")
        self._agents += 1
        new = AgentId(f"{self._number}-agent-{self._agents}")
        gone = on.AgentGone(0.0, agent, "its executor died")
        self.inbox.extend((gone, on.AgentJoined(0.0, new, 0, f"host-{new}"), on.AgentSent(0.0, new, m.Ready(RUN))))

    def handle(self, event: on.Event) -> None:
        """Write the records first, then perform the commands that depend on them."""
        commands = self._machine.handle(event)
        self.write_down([each.record for each in commands if isinstance(each, do.WriteRecord)])
        for command in commands:
            self.perform(command)

    def write_down(self, records: Sequence[AnyRecord]) -> None:
        patiently(lambda: self.journal.append(records))

    def perform(self, command: do.Command) -> None:
        match command:
            case do.Suggest():
                known = self._machine.last is not None and self._machine.last.trials
                self.inbox.append(on.Suggested(0.0, RUN, () if known else ({},), exhausted=True))
            case do.PlaceMember(agent=agent, member=member, checkpoint=base):
                self.writer = Writer(self._world, self, agent, member, base)
            case do.Send(message=m.AckCheckpoint(checkpoint=checkpoint)):
                self._world.acknowledged.append(checkpoint)
            case do.DeleteCheckpoints(checkpoints=doomed):
                self._world.clean(lambda actor: [product.delete(actor.store, each) for each in doomed])
            case do.SweepCheckpoints(retained=kept, before=before):
                self._world.clean(lambda actor: product.collect_garbage(actor.store, LAYOUT, TRIAL, kept, before))


class Writer:
    """The chief and its agent in one generation: resumes from `base`, and checkpoints some steps."""

    def __init__(self, world: "World", driver: Driver, agent: AgentId, member: Member, base: Checkpoint | None) -> None:
        self.waits = False
        """Whether it waits for its driver."""
        self._world = world
        self._driver = driver
        self._agent = agent
        self._member = member
        self.actor = world.start(lambda actor: self._live(actor, base))

    def _live(self, actor: Actor, base: Checkpoint | None) -> None:
        parent, first = "", 1
        if base is not None:
            try:
                self._world.restore(actor, base)
            except CheckpointError as error:
                failed = Outcome(0.0, failure=Failure(FailureKind.CHECKPOINT, str(error)))
                self._driver.inbox.append(on.AgentSent(0.0, self._agent, m.MemberEnded(self._member, failed)))
                return
            parent, first = base.digest, base.step + 1
        for step in range(first, first + STEPS):
            written = self.write(actor, step, parent)
            if written is None:
                continue  # training continues
            self._driver.inbox.append(on.AgentSent(0.0, self._agent, m.CheckpointStored(self._member, written)))
            self.waits = True
            while written not in self._world.acknowledged:
                actor.gate("wait", lambda: None)
            self.waits = False
            parent = written.digest

    def write(self, actor: Actor, step: int, parent: str) -> Checkpoint | None:
        """Write as an agent does: retry after an error of the store, never after a refusal."""
        generation = self._member.generation
        snapshot = draft(self._world.local, step, generation, parent=parent, writer=self._agent)
        try:
            written = patiently(lambda: product.write(actor.store, LAYOUT, snapshot, threads=1))
        except OSError:
            return None
        self._world.note(written, parent, snapshot.folder / product.MANIFEST)
        return written


class World:
    """A store, the knowledge about its checkpoints, and all actors."""

    def __init__(self, local: Path) -> None:
        self.files = Disk()
        self.local = local
        self.actors: list[Actor] = []
        self.drivers: list[tuple[Driver, Actor]] = []
        self.cleaners: list[Actor] = []
        self.acknowledged: list[Checkpoint] = []
        """Checkpoints that were acknowledged to writers."""
        self.trial = CheckpointHistory()
        """The trial as the next driver would know it."""
        self._current = ""
        """Path prefix of manifests of the running generation; empty when there is none."""
        self.rotten: set[str] = set()
        """Paths of files that were corrupted after they had been acknowledged."""
        self._known: dict[str, tuple[Checkpoint, str, list[str]]] = {}
        """Checkpoints by digest, with their parent's digest and their files."""
        self._formed: dict[int, GangFormed] = {}
        """Records by generation, from the journal."""
        self._journal: tuple[object, ...] = ()
        self._checked: set[tuple[object, ...]] = set()
        self._seen: tuple[int, dict[str, bytes]] = 0, {}
        """The number of acknowledged checkpoints and all files at the last call of `check`."""
        self.drive()

    # ---- actors

    def start(self, work: Callable[[Actor], object]) -> Actor:
        actor = Actor(lambda actor: void(work(actor)), self.files)
        self.actors = [*(each for each in self.actors if not each.over), actor]
        return actor

    def clean(self, work: Callable[[Actor], object]) -> None:
        self.cleaners = [*(each for each in self.cleaners if not each.over), self.start(work)]

    def drive(self) -> None:
        """Start a driver that takes over; the previous one and its writers may not have noticed."""
        driver = Driver(self)
        self.drivers.append((driver, self.start(driver.live)))

    def replace(self, side: int) -> None:
        """Make the newest driver, or the previous one, lose its agent and restart the gang."""
        self._side(side)[0].hire()

    def next(self, side: int = 0) -> Actor:
        """The actor that can make progress for the newest driver (or the previous one): the driver or its writer."""
        driver, actor = self._side(side)
        writer = driver.writer
        if writer is None or writer.actor.over or writer.waits or (driver.inbox and not actor.over):
            return actor
        return writer.actor

    def _side(self, side: int) -> tuple[Driver, Actor]:
        return self.drivers[max(-1 - side, -len(self.drivers))]

    def close(self) -> None:
        for each in self.actors:
            each.crash()

    def restore(self, actor: Actor, base: Checkpoint) -> None:
        try:
            found = loaded(actor.store, base, self.local)
        except CheckpointError:
            # A replaced writer may come too late for it.
            assert self._is_rotten(base) or base not in self.trial.retained, f"{base} cannot be resumed from"
            raise
        assert found == content(base.generation, base.step), f"{base} resumes with other data"

    def note(self, written: Checkpoint, parent: str, manifest: Path) -> None:
        found = product.msgspec.json.decode(manifest.read_bytes())
        shards = [f"{found['data']}.{shard['name']}" for shard in found["shards"]]
        self._known[written.digest] = written, parent, [written.manifest, *shards]

    def rot(self, index: int) -> None:
        """Flip a bit of some acknowledged checkpoint."""
        files = [path for each in self.trial.retained for path in self._known[each.digest][2]]
        path = files[index % len(files)] if files else ""
        if path in self.files.files and path not in self.rotten:
            data = self.files.files[path]
            self.files.files[path] = bytes([data[0] ^ 1]) + data[1:]
            self.rotten.add(path)

    # ---- what must hold at every moment

    def check(self) -> None:
        """Check the invariants. Returns at once when no file has changed, because most operations read."""
        if self._seen == (len(self.acknowledged), self.files.files):
            return
        self._seen = len(self.acknowledged), dict(self.files.files)
        self._read_journal()
        for each in self.trial.retained:
            held = [(path, hash(self.files.files.get(path))) for path in self._known[each.digest][2]]
            if (key := (each.digest, *held)) not in self._checked:
                self._check_kept(each)
                self._checked.add(key)
        self._check_lineage()
        self._check_visible()

    def _read_journal(self) -> None:
        """Learn what the next driver would know."""
        names = tuple((path, data) for path, data in self.files.files.items() if path.startswith(LAYOUT.journal.path))
        if names == self._journal:
            return
        self._journal = names
        try:
            records = read(self.files, LAYOUT.journal).records
        except JournalCorruptError as error:
            raise AssertionError(f"LOST: {error}") from error
        sweep = Sweep(RUN, LIMITS, 0.0)
        fold(sweep, records)
        if sweep.trials:
            self.trial = sweep.trials[TRIAL].checkpoints
        newest = next((each for each in reversed(records) if isinstance(each, GangFormed | DriverStarted)), None)
        is_on = isinstance(newest, GangFormed)
        self._current = f"{LAYOUT.generation(TRIAL, newest.generation).path}/manifest-" if is_on else ""
        formed = [each for each in records if isinstance(each, GangFormed)]
        self._formed = {each.generation: each for each in formed}
        assert len(self._formed) == len(formed), f"FORKED: a generation was formed twice: {formed}"
        for corrupt, reason in self.trial.corrupt:
            assert self._is_rotten(corrupt), f"LOST: {reason}"

    def _check_kept(self, checkpoint: Checkpoint) -> None:
        """A checkpoint loads with the written content; a corrupt one does not load."""
        rotten, found, problem = self._is_rotten(checkpoint), None, ""
        try:
            found = loaded(self.files, checkpoint, self.local)
        except CheckpointError as error:
            problem = str(error)
        assert rotten or not problem, f"LOST: {problem}"
        if problem:
            return
        assert not rotten, f"CORRUPT, but loads: {checkpoint}"
        assert found == content(checkpoint.generation, checkpoint.step), f"GARBLED: {checkpoint}"

    def _check_lineage(self) -> None:
        """Acknowledged checkpoints are ancestors of the one to resume; a generation starts from its assigned one."""
        if self.trial.all_corrupt:
            return  # earlier ones were deleted, and nothing can be resumed
        digests = set()
        digest = self.trial.newest.digest if self.trial.newest is not None else ""
        while digest:
            digests.add(digest)
            checkpoint, parent, _ = self._known[digest]
            before = self._known[parent][0].generation if parent else None
            if before != checkpoint.generation:
                formed = self._formed.get(checkpoint.generation)
                matches = formed is not None and formed.base == parent
                assert matches, f"FORKED: {checkpoint} follows from {parent!r}, but {formed}"
            digest = parent
        for each in self.acknowledged:
            remembered = each.digest in digests or self._is_rotten(each)
            assert remembered, f"LOST: {each} was acknowledged, and is missing"

    def _check_visible(self) -> None:
        """A visible manifest that is acknowledged or of the current generation has all of its shards."""
        counted = {each.manifest for each in self.acknowledged}
        for path in [*self.files.files]:
            current = bool(self._current) and path.startswith(self._current)
            if path in self.rotten or not (current or path in counted):
                continue
            try:
                manifest = product.msgspec.json.decode(self.files.read(path))
            except product.msgspec.MsgspecError as error:
                raise AssertionError(f"INCOMPLETE: {path}: {error}") from error
            for shard in manifest["shards"]:
                name = f"{manifest['data']}.{shard['name']}"
                held = self.files.files.get(name, b"")
                assert name in self.rotten or len(held) == shard["size"], f"INCOMPLETE: {path} lacks {name}"

    def _is_rotten(self, checkpoint: Checkpoint) -> bool:
        return bool(self.rotten & set(self._known[checkpoint.digest][2]))


def patiently(call: Callable[[], T]) -> T:
    """As agents and drivers do: again after an error of the store, never after a refusal."""
    for _ in range(ATTEMPTS - 1):
        try:
            return call()
        except (CheckpointError, RunDirectoryError):
            raise
        except OSError:
            continue
    return call()


def void(result: object) -> None:
    """Forget it."""
