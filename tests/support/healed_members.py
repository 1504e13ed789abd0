"""What the members of a gang have left in the folder of a training that loses processes."""

import json
from pathlib import Path
from typing import Any

import numpy as np

Members = list[tuple[dict[str, bytes], dict[str, Any]]]
"""By rank: the variables by name, and the facts that the member has noted, with the rows that it trained on, if any."""


def members_in(notes: Path, size: int) -> tuple[Members, int]:
    """The members, and how many processes there were."""
    members = []
    for rank in range(size):
        with np.load(notes / f"member-{rank}.npz") as stored:
            variables = {name: stored[name].tobytes() for name in stored.files}
        facts = json.loads((notes / f"facts-{rank}.json").read_text())
        # Of all processes: one that takes the place of another one trains on the same rows in the same step.
        lines = {line for path in notes.glob(f"rows-{rank}-*") for line in path.read_text().splitlines()}
        members.append((variables, facts | {"rows": sorted(json.loads(line) for line in lines)}))
    return members, len(list(notes.glob("pid-*")))
