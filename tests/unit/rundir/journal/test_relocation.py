"""Records of a run directory that has another name now."""

from typing import get_args, get_type_hints

import pytest

from sparktrain.base.ids import Generation, TrialId
from sparktrain.rundir.journal.reader import relocated
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.records import (
    AnyRecord,
    CheckpointAcknowledged,
    CheckpointCorrupt,
    CheckpointsDropped,
    Exploited,
    Record,
)

TRIAL = TrialId(3)
PATHS = {name: f"{name}/trials/0003/checkpoints/gen-0001/manifest-00000007" for name in ("old run", "new")}


def records_of(path: str) -> list[Record]:
    checkpoint = Checkpoint(Generation(1), 7, path, "digest")
    return [
        CheckpointAcknowledged(trial=TRIAL, checkpoint=checkpoint),
        CheckpointCorrupt(trial=TRIAL, manifest=path, reason="lost"),
        CheckpointsDropped(trial=TRIAL, manifests=(path, path), reason="lost"),
        Exploited(trial=TrialId(1), donor=TRIAL, checkpoint=checkpoint, params={}, step=7, reason="better"),
    ]


@pytest.mark.parametrize("name", ["old run", "new"])
def test_each_record_with_a_path_is_read_in_the_directory_that_has_it(name: str) -> None:
    assert list(relocated(records_of(PATHS[name]), "new")) == records_of(PATHS["new"])


def test_no_other_record_has_a_path() -> None:
    def has_path(kind: type) -> bool:
        return any(hint is Checkpoint or "manifest" in field for field, hint in get_type_hints(kind).items())

    assert {kind for kind in get_args(AnyRecord) if has_path(kind)} == {type(entry) for entry in records_of("")}


def test_a_path_that_no_checkpoint_has_stays() -> None:
    dropped = CheckpointsDropped(trial=TRIAL, manifests=("old/elsewhere/manifest-00000007",), reason="")
    assert list(relocated([dropped], "new")) == [dropped]
