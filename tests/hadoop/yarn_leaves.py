"""A client that submits a run from a session on YARN, prints its directory, and waits to be killed.

python yarn_leaves.py CONF.json DIRECTORY NAME FOLDER
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import sparktrain as st

REVERSED = "slairt-fo-terces-a"
SECRET = REVERSED[::-1]
"""The run directory has the code of this file, and must have this text nowhere."""


def main(conf: str, directory: str, name: str, folder: str) -> None:
    """Submit a sweep with trials that last until the file `hold` is gone from `folder`."""

    def train(x: int, folder: str, ctx: Any) -> dict[str, float]:
        import time
        from pathlib import Path

        Path(folder, f"start-{x}").touch()
        while Path(folder, "hold").exists():
            time.sleep(0.05)
        return {"y": 2.0 * x, "secret": float(os.environ["TRIAL_SECRET"][::-1] == "slairt-fo-terces-a")}

    with st.session("yarn", json.loads(Path(conf).read_text())):
        handle = st.submit(
            train, {"x": [1, 2], "folder": [folder]}, metric="y", mode="max", backend="none", preload=["numpy"],
            dir=directory, name=name, env={"TRIAL_SECRET": SECRET}, progress=False,
        )  # fmt: skip
        print(handle.directory, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
