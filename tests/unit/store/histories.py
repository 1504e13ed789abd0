"""Histories of a trial's checkpoints: writers, a coordinator and deletions that take turns at each store operation.

Every actor runs the product's own functions in a thread of its own, and waits at a gate before each operation of the
store: so a crash between any two operations is an actor that gets no more turns, and a zombie is one that gets them
after it was replaced. After `ckpt_protocol_model` of the design: there the protocol is modelled, here the code is run.
"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sparktrain.errors import CheckpointError
from sparktrain.ids import Generation
from sparktrain.state.checkpoints import Checkpoint, Checkpoints
from sparktrain.store import checkpoints as product
from tests.unit.store.gated import Crash, GatedStore, MemoryStore, drop, fault
from tests.unit.store.snapshots import LAYOUT, TRIAL, content, draft, loaded

DEADLINE_S = 30.0
ATTEMPTS = 3
STEPS = 4


class Actor:
    """A function in a thread that goes on for one operation at each `step`."""

    def __init__(self, work: "Callable[[Actor], None]", files: MemoryStore) -> None:
        self.over = False
        self.problem: BaseException | None = None
        self._files = files
        self._fault = ""
        self._turn = threading.Semaphore(0)
        self._waits = threading.Semaphore(0)
        self.store = GatedStore(files, self.gate)
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()
        self._await()

    def step(self, fault: str = "") -> None:
        """Do the next operation; with a fault before or after it, with torn data, or as a crash before it."""
        if not self.over:
            self._fault = fault
            self._turn.release()
            self._await()

    def crash(self) -> None:
        """End without another operation."""
        while not self.over:
            self.step("crash")
        self._thread.join(DEADLINE_S)

    def gate(self, name: str, effect: Callable[[], Any]) -> Any:
        self._waits.release()
        assert self._turn.acquire(timeout=DEADLINE_S)
        kind, self._fault = self._fault, ""
        if kind == "crash":
            raise Crash
        if kind == "before":
            raise fault()
        self._files.torn = kind == "torn"
        result = effect()
        self._files.torn = False
        if kind == "after":
            drop(result)
            raise fault()
        return result

    def _await(self) -> None:
        assert self._waits.acquire(timeout=DEADLINE_S), "an actor does not come to its next operation"
        if self.problem is not None:
            raise self.problem

    def _run(self, work: "Callable[[Actor], None]") -> None:
        try:
            work(self)
        except (Crash, OSError):
            pass
        except BaseException as problem:
            self.problem = problem
        self.over = True
        self._waits.release()


class World:
    """A store, the coordinator's memory, and the actors of one trial."""

    def __init__(self, local: Path) -> None:
        self.files = MemoryStore()
        self.trial = Checkpoints()
        self.generation = Generation(1)
        self.acknowledged: list[Checkpoint] = []
        self.parents: dict[str, str] = {}
        """By digest."""
        self.paths: dict[str, list[str]] = {}
        """The files of a checkpoint, by digest."""
        self.rotten: set[str] = set()
        """Paths of files that were damaged after they had been acknowledged."""
        self.actors: list[Actor] = []
        self.doomed: list[Checkpoint] = []
        self._local = local
        self._checked: set[tuple[object, ...]] = set()
        self.start(self.writer(Generation(1), None))

    def start(self, work: Callable[[Actor], None]) -> None:
        self.actors = [*(each for each in self.actors if not each.over), Actor(work, self.files)]

    def close(self) -> None:
        for each in self.actors:
            each.crash()

    # ---- actors

    def writer(self, generation: Generation, base: Checkpoint | None) -> Callable[[Actor], None]:
        """The chief's agent of a generation: resumes from `base`, and checkpoints some steps."""

        def work(actor: Actor) -> None:
            parent, first = "", 1
            if base is not None:
                self._restore(actor, base)
                parent, first = base.digest, base.step + 1
            for step in range(first, first + STEPS):
                written = self.write(actor, generation, step, parent)
                if written is None or not actor.gate("acknowledge", lambda c=written: self._acknowledge(c)):
                    return
                parent = written.digest

        return work

    def write(self, actor: Actor, generation: Generation, step: int, parent: str) -> Checkpoint | None:
        """As an agent does: again after an error of the store, never after a refusal."""
        snapshot = draft(self._local, step, generation, parent=parent, writer=f"agent-{generation}")
        for _ in range(ATTEMPTS):
            try:
                written = product.write(actor.store, LAYOUT, snapshot, threads=1)
            except CheckpointError:
                return None
            except OSError:
                continue
            self.parents[written.digest] = parent
            manifest = product.msgspec.json.decode((snapshot.folder / product.MANIFEST).read_bytes())
            shards = [f"{manifest['data']}/{shard['name']}" for shard in manifest["shards"]]
            self.paths[written.digest] = [written.manifest, *shards]
            return written
        return None

    def _restore(self, actor: Actor, base: Checkpoint) -> None:
        try:
            found = loaded(actor.store, base, self._local)
        except CheckpointError:
            # Who was replaced may come too late for it.
            assert self._is_rotten(base) or base not in self.trial.kept, f"{base} cannot be resumed from"
            raise
        assert found == content(base.generation, base.step), f"{base} resumes with other data"

    def _acknowledge(self, checkpoint: Checkpoint) -> bool:
        """What the coordinator does with `CheckpointWritten`."""
        if not self.current(checkpoint):
            return False
        self.acknowledged.append(checkpoint)
        self.doomed += self.trial.acknowledge(checkpoint)
        return True

    def current(self, checkpoint: Checkpoint) -> bool:
        return checkpoint.generation == self.generation

    def form(self) -> None:
        """The gang is formed anew; the writer before goes on as a zombie, if it was not crashed."""
        self.generation = Generation(self.generation + 1)
        self.start(self.writer(self.generation, self.trial.newest))

    def collect(self) -> None:
        """The coordinator deletes what is not needed any more; what fails is tried again later."""
        doomed, self.doomed = self.doomed, []

        def work(actor: Actor) -> None:
            while doomed:
                try:
                    product.delete(actor.store, doomed[0])
                except BaseException:
                    self.doomed += doomed
                    raise
                doomed.pop(0)

        self.start(work)

    def sweep(self) -> None:
        kept, before = tuple(self.trial.kept), self.generation
        self.start(lambda actor: product.sweep(actor.store, LAYOUT, TRIAL, kept, before))

    def rot(self, index: int) -> None:
        """A bit of some acknowledged checkpoint flips."""
        files = [path for each in self.trial.kept for path in self.paths[each.digest]]
        path = files[index % len(files)] if files else ""
        if path in self.files.files and path not in self.rotten:
            data = self.files.files[path]
            self.files.files[path] = bytes([data[0] ^ 1]) + data[1:]
            self.rotten.add(path)

    # ---- what must hold at every moment

    def check(self) -> None:
        for each in self.trial.kept:
            held = [(path, hash(self.files.files.get(path))) for path in self.paths[each.digest]]
            if (key := (each.digest, *held)) not in self._checked:
                self._check_kept(each)
                self._checked.add(key)
        self._check_lineage()
        current = LAYOUT.generation(TRIAL, self.generation).manifest(0).removesuffix("00000000")
        counted = {each.manifest for each in self.acknowledged}
        for path in [*self.files.files]:
            if (path.startswith(current) or path in counted) and path not in self.rotten:
                self._check_visible(path)

    def _check_kept(self, checkpoint: Checkpoint) -> None:
        """It loads, and is what was written; a damaged one does not load."""
        rotten, found, problem = self._is_rotten(checkpoint), None, ""
        try:
            found = loaded(self.files, checkpoint, self._local)
        except CheckpointError as error:
            problem = str(error)
        assert rotten or not problem, f"LOST: {problem}"
        if problem:
            return
        assert not rotten, f"CORRUPT, but loads: {checkpoint}"
        assert found == content(checkpoint.generation, checkpoint.step), f"GARBLED: {checkpoint}"

    def _check_lineage(self) -> None:
        """Each acknowledged checkpoint comes from the one acknowledged before it: a single line, without zombies."""
        digests = ["", *(each.digest for each in self.acknowledged)]
        for before, each in zip(digests, self.acknowledged, strict=False):
            assert self.parents[each.digest] == before, f"FORKED: {each}"

    def _check_visible(self, manifest: str) -> None:
        """A manifest that can be seen has all of its shards."""
        content = product.msgspec.json.decode(self.files.read(manifest))
        for shard in content["shards"]:
            path = f"{content['data']}/{shard['name']}"
            held = self.files.files.get(path, b"")
            assert path in self.rotten or len(held) == shard["size"], f"INCOMPLETE: {manifest} lacks {path}"

    def _is_rotten(self, checkpoint: Checkpoint) -> bool:
        return bool(self.rotten & set(self.paths[checkpoint.digest]))
