"""What a user can get wrong before anything starts: each is one of our errors, at once, with the next step."""

import re
import time
from pathlib import Path

import pytest

from tests.unit.bad_input import files, functions, gangs, spaces, specs
from tests.unit.bad_input.case import Case, Files

CASES = [*specs.CASES, *spaces.CASES, *files.CASES, *functions.CASES, *gangs.CASES]
SECONDS = 1.0


pytestmark = pytest.mark.usefixtures("own_imports")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_is_refused_at_once_with_the_next_step(case: Case, tmp_path: Path) -> None:
    begun = time.process_time()
    with pytest.raises(case.error) as caught:
        case.call(Files(tmp_path))
    assert time.process_time() - begun < SECONDS
    for pattern in case.patterns:
        assert re.search(pattern, str(caught.value), re.DOTALL), f"{pattern!r} is not in: {caught.value}"


def test_there_are_enough_cases_and_no_two_alike() -> None:
    assert len(CASES) >= 140
    assert len({case.id for case in CASES}) == len(CASES)
