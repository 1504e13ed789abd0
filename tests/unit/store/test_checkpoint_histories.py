"""No history of crashes, faults, replaced writers and deletions loses or garbles a checkpoint that was acknowledged.

The same histories find each of the mistakes that systems like this one have made: see `MUTANTS`.
"""

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from sparktrain.ids import Generation
from sparktrain.state.checkpoints import Checkpoint
from sparktrain.store import checkpoints as product
from sparktrain.store.base import Store
from sparktrain.store.layout import CheckpointLayout, RunLayout
from tests.unit.store.histories import Actor, World
from tests.unit.store.snapshots import quick_folder

some = st.integers(0, 5)
HISTORIES = 60
FAULTS = ("before", "after", "torn")


class Histories(RuleBasedStateMachine):
    """Hypothesis chooses who does the next operations, and what breaks."""

    def __init__(self) -> None:
        super().__init__()
        self._open = ExitStack()
        self.world = World(self._open.enter_context(quick_folder()))

    def teardown(self) -> None:
        self.world.close()
        self._open.close()

    def _step(self, index: int, fault: str = "") -> None:
        actors = self.world.actors
        if actors:
            actors[-1 - index % len(actors)].step(fault)

    @rule(index=some, count=st.integers(1, 14))
    def steps(self, index: int, count: int) -> None:
        for _ in range(count):
            self._step(index)
            self.world.check()

    @rule(index=st.integers(0, 1), count=st.integers(10, 40))
    def go_on(self, index: int, count: int) -> None:
        """Who came last gets somewhere, or who came before."""
        for _ in range(count):
            self._step(index)
            self.world.check()

    @rule(count=st.integers(10, 30))
    def replace(self, count: int) -> None:
        """The gang is formed anew and gets somewhere; who was replaced may not have noticed."""
        self.world.form()
        self.go_on(index=0, count=count)

    @rule(index=some, fault=st.sampled_from(FAULTS))
    def faulty_step(self, index: int, fault: str) -> None:
        self._step(index, fault)

    @rule(index=some)
    def crash(self, index: int) -> None:
        if self.world.actors:
            self.world.actors.pop(-1 - index % len(self.world.actors)).crash()

    @rule()
    def form_gang(self) -> None:
        self.world.form()

    @rule(count=st.integers(0, 20))
    def collect(self, count: int) -> None:
        self.world.collect()
        self.go_on(index=0, count=count)

    @rule(count=st.integers(0, 20))
    def sweep(self, count: int) -> None:
        self.world.sweep()
        self.go_on(index=0, count=count)

    @rule(index=st.integers(0, 8))
    def rot(self, index: int) -> None:
        self.world.rot(index)

    @invariant()
    def safe(self) -> None:
        self.world.check()


def run(histories: int) -> None:
    """Play so many histories; the same ones each time."""
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=histories,
            stateful_step_count=30,
            deadline=None,
            database=None,
            derandomize=True,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_no_history_loses_or_garbles_an_acknowledged_checkpoint() -> None:
    run(HISTORIES)


# ---- mistakes


def _agent_deletes() -> Any:
    """The chief keeps only its last checkpoint, and does not wait until the coordinator has acknowledged it."""
    real = World.write

    def write(self: World, actor: Actor, generation: Generation, step: int, parent: str) -> Checkpoint | None:
        written = real(self, actor, generation, step, parent)
        for each in self.trial.kept if written else []:
            product.delete(actor.store, each)
        return written

    return patch.object(World, "write", write)


def _nothing_is_verified() -> Any:
    """Neither is a shard read back, nor is it checked when it is fetched."""
    return patch.object(product, "_verified", lambda store, path, shard: store.pieces(path))


def _manifest_first() -> Any:
    """The manifest is published before the shards are written."""
    real_put, real_publish, later = product._put_shard, product._publish, []

    def put(store: Store, path: str, file: Path, check: Callable[[], None]) -> product.Shard:
        later.append((store, path, file, check))
        data = file.read_bytes()
        return product.Shard(file.name, len(data), product.hashlib.sha256(data).hexdigest())

    def publish(store: Store, path: str, manifest: product.Manifest) -> bytes:
        content = real_publish(store, path, manifest)
        while later:
            real_put(*later.pop(0))
        return content

    return patch.multiple(product, _put_shard=put, _publish=publish)


def _data_is_deleted_first() -> Any:
    def delete(store: Store, checkpoint: Checkpoint) -> None:
        folder = checkpoint.manifest.rpartition("/")[0]
        for path in store.list(f"{folder}/data"):
            if product._step(path) == checkpoint.step:
                store.delete(path)
        store.delete(checkpoint.manifest)

    return patch.object(product, "delete", delete)


def _nobody_is_fenced() -> Any:
    """The coordinator acknowledges what any generation has written."""
    return patch.object(World, "current", lambda self, checkpoint: True)


def _generations_share_a_folder() -> Any:
    folder = CheckpointLayout("run/trials/0003/checkpoints/gen-0001")
    return patch.object(RunLayout, "generation", lambda self, trial, generation: folder)


def _sweep_forgets_the_base() -> Any:
    real = product.sweep

    def sweep(store: Store, layout: RunLayout, trial: Any, kept: Any, before: Generation) -> None:
        real(store, layout, trial, [each for each in kept if each.generation == before], before)

    return patch.object(product, "sweep", sweep)


MUTANTS = {
    "the agent deletes": (_agent_deletes, "LOST"),
    "nothing is verified": (_nothing_is_verified, "GARBLED|CORRUPT|resumes with other data|INCOMPLETE"),
    "the manifest is first": (_manifest_first, "INCOMPLETE"),
    "the data is deleted first": (_data_is_deleted_first, "INCOMPLETE"),
    "nobody is fenced": (_nobody_is_fenced, "FORKED"),
    "generations share a folder": (_generations_share_a_folder, "LOST|FORKED|cannot be resumed"),
    "a sweep forgets the base": (_sweep_forgets_the_base, "LOST|cannot be resumed"),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_histories_find_the_mistake(mutant: str) -> None:
    mistake, words = MUTANTS[mutant]
    with mistake(), pytest.raises(AssertionError, match=words):
        run(HISTORIES)
