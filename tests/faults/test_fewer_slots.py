"""After a permanent node loss, an elastic gang continues with the members that are left."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain.base.clock import pause
from tests.faults.standalone import Standalone, standalone
from tests.support.local_spark import spark_session
from tests.support.processes import wait_until

TRAINS_S = 60.0
SHRINKS_S = 90.0
"""Seconds from the loss; the gang waits for another executor for half a minute."""
LR = 0.5
EXAMPLES = 8


def train(folder: str, ctx: Any) -> dict[str, float]:
    """Train until FOLDER/enough exists; each member notes its process, first step, learning rate and batches."""
    import numpy as np

    restored = ctx.checkpoint.restore()
    step = first = restored.step if restored is not None else 0
    batches = int(ctx.shard(np.arange(EXAMPLES), batch_size=1).cardinality())
    hidden = Path(folder, f".{ctx.generation}-{ctx.rank}")
    hidden.write_text(f"{os.getpid()} {first} {ctx.scale_lr(LR)} {batches}")
    hidden.rename(Path(folder, hidden.name[1:]))
    while not Path(folder, "enough").exists():
        step += 1
        if ctx.rank == 0:
            ctx.checkpoint.save(step)
        pause(0.05)
    return {"members": ctx.size}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Standalone]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with standalone(folder, ["127.0.0.1"] * 2) as made:
        yield made


def note(folder: Path, generation: int, rank: int) -> list[float]:
    """Wait for the note of a member: its process, first step, learning rate, and batches of an epoch."""
    path = folder / f"{generation}-{rank}"
    wait_until(
        path.exists, TRAINS_S if generation == 1 else SHRINKS_S, f"rank {rank} of generation {generation} trains"
    )
    return [float(each) for each in path.read_text().split()]


@pytest.mark.all(
    case="a node is lost for good, and the gang shrinks", covered_by="`histories/test_gangs`, `unit/state/test_gangs`"
)
@pytest.mark.timeout(300)
def test_a_gang_shrinks_after_a_permanent_node_loss(cluster: Standalone, runs: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    options: dict[str, Any] = {"max_retries": 1, "preload": ["tensorflow"], "progress": False, "dir": str(runs)}
    with spark_session(cluster.url, tmp_path), ThreadPoolExecutor(1) as threads:
        running = threads.submit(
            st.run, train, {"folder": str(notes)}, workers=2, min_workers=1, backend="none", name="smaller", **options
        )
        try:
            before = [note(notes, 1, rank) for rank in range(2)]
            wait_until(lambda: list(runs.glob("smaller/**/manifest-*")), TRAINS_S, "there is a checkpoint")
            cluster.lose(int(before[1][0]))
            after = note(notes, 2, 0)
        finally:
            (notes / "enough").touch()
        result = running.result(TRAINS_S)

    assert [each[1:] for each in before] == [[0, 2 * LR, EXAMPLES / 2]] * 2
    assert after[1] > 0, "it resumes from a checkpoint"
    assert after[2:] == [LR, EXAMPLES]
    assert result.metrics == {"members": 1}
    assert not (notes / "2-1").exists()
    [restart] = result.restarts
    assert restart.rank == 1
