"""What feeds of `data=` are compared with: rows in a Parquet file, and rates of rivals in processes of their own."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.member_data import BATCH, Rate

GROUP_ROWS = 20_000


def write_parquet(folder: Path, table: pa.Table) -> None:
    """Write the table as a file that is not compressed."""
    folder.mkdir()
    pq.write_table(table, folder / "rows.parquet", compression="none", row_group_size=GROUP_ROWS)


def why_no_petastorm(interpreter: str, framework: str) -> str:
    """Why the environment of this interpreter has no petastorm for `tensorflow` or `torch`; nothing where it has."""
    module = {"tensorflow": "petastorm.tf_utils", "torch": "petastorm.pytorch"}[framework]
    tried = subprocess.run(
        [interpreter, "-c", f"import {module}"], capture_output=True, text=True, timeout=300, check=False
    )
    return tried.stderr.strip().splitlines()[-1] if tried.returncode else ""


def petastorm_rate(interpreter: str, folder: Path, rows: int, framework: str) -> Rate:
    """The rate of petastorm on what `write_parquet` has written, with bytes in `x`."""
    script = Path(__file__).with_name("petastorm_feed.py")
    return printed_rate([interpreter, str(script), str(folder), "x", str(BATCH), framework], rows)


def printed_rate(command: Sequence[str], rows: int) -> Rate:
    """The rate that a process prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed: {done.stderr}")
    rate = Rate(**json.loads(done.stdout.splitlines()[-1]))
    assert rate.rows == rows, f"{rate.rows} rows of {rows}"
    return rate
