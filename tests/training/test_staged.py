"""Programs with several calls of `fit`, and callbacks that decide: alone, in a gang, and killed, they end equal."""

from pathlib import Path

import pytest

from tests.training.gangs import run_gang
from tests.training.staged import PROGRAMS, train

OTHER_PROGRAMS = pytest.mark.all(
    case="ten of twelve staged programs, killed in each stage",
    covered_by="two of them; `training/test_callbacks`: the files of callbacks",
)

KILLS = {
    "frozen_then_tuned": (6, 14),
    "folds_with_one_list_of_callbacks": (11,),
    "folds_drawn_by_chance": (10,),
    "one_epoch_at_a_time": (15,),
    "autoencoder_then_classifier": (5, 11),
    "stopped_early": (7, 17),
    "rates_that_fall": (6,),
    "a_callback_of_ones_own": (7,),
    "stopped_by_one_member": (4,),
    "without_an_input_layer": (9,),
    "in_a_graph": (13,),
    "files_of_callbacks": (9,),
}
"""By program: after which steps it is killed, with one call of `fit` running or another; once in each life."""
OFTEN = {"frozen_then_tuned", "stopped_by_one_member"}
"""Programs of `make test`; `make test-all` has the others too."""
EQUAL_ALONE = {"rel": 1e-6, "abs": 1e-7}
EQUAL_IN_GANGS = {"rel": 1e-5, "abs": 2e-6}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in OFTEN else OTHER_PROGRAMS) for name in PROGRAMS]
)
def test_ends_as_one_process_that_lives(name: str, tmp_path: Path) -> None:
    lives = [(name, kill) for kill in (0, *KILLS[name])]
    [alone] = run_gang(train, 1, "none", folder=str(tmp_path / "alone"), lives=lives)
    members = run_gang(train, 2, "tensorflow", folder=str(tmp_path / "gang"), lives=lives[-1:])
    whole, reports = alone[0]

    assert whole
    for (_, kill), (found, reported) in zip(lives[1:], alone[1:], strict=True):
        assert (found, kill) == (pytest.approx(whole, **EQUAL_ALONE), kill)
        assert reported == reports
    for rank, [[found, reported]] in enumerate(members):
        assert (found, rank) == (pytest.approx(whole, **EQUAL_IN_GANGS), rank)
        assert reported == ([] if rank else reports)
