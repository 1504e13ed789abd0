"""The same calls on a Spark Connect session."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.spark.command import HANG_S

pytestmark = pytest.mark.timeout(HANG_S + 10)


def seen_by(driver: str, folder: Path) -> Any:
    """What a driver of this folder, a process of its own, prints about its Connect session."""
    command = [sys.executable, "-m", f"tests.spark.{driver}", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_sweep_and_pool_work_on_a_connect_session(tmp_path: Path) -> None:
    seen = seen_by("connect_driver", tmp_path)
    assert seen["session"] == "pyspark.sql.connect.session"
    assert seen["sweep"] == [1.0, 4.0, 9.0]
    assert seen["pool"] == [{"result": 8.0}, {"result": 10.0}]
    assert seen["afterwards"] == 10


@pytest.mark.all(
    case="stages of Spark ML train, save and load on a Connect session",
    covered_by="`spark/test_ml`: on a classic session",
)
def test_stages_train_save_and_load_on_a_connect_session(tmp_path: Path) -> None:
    seen = seen_by("ml_connect_driver", tmp_path)
    assert (seen["session"], seen["metrics"]) == ("pyspark.sql.connect.session", 2)
    assert len(seen["found"]) == 60
    assert seen["loaded"] == seen["found"]


@pytest.mark.all(case="streams of a Connect session", covered_by="`spark/test_streams`: those of a classic session")
def test_streams_feed_members_on_a_connect_session(tmp_path: Path) -> None:
    seen = seen_by("stream_connect_driver", tmp_path)
    assert seen["finite"] == {"rows": 20_000, "different": 20_000}
    assert seen["endless"] == {"rows": 1500, "different": 1500}
    assert seen["queries"] == {"active": 0}


@pytest.mark.all(
    case="a gang trains on a DataFrame of a Connect session; DataFrames that are refused there",
    covered_by="`spark/test_data`: on a classic session; `unit/driver/test_frame_data`: each refusal",
)
def test_dataframes_of_a_connect_session_train_or_are_refused_before_anything_starts(tmp_path: Path) -> None:
    seen = seen_by("data_connect_driver", tmp_path)
    assert seen["session"] == "pyspark.sql.connect.session"
    assert seen["ids"] == list(range(280))
    assert seen["metrics"] == {"rows": 280, "noted": 140, "right": 140, "steps": 20}
    assert seen["files"] == 5

    refused = {name: text.partition(": ") for name, text in seen["refused"].items()}
    assert {name: kind for name, (kind, _, _) in refused.items()} == {
        "types": "DataError", "query": "DataError", "nulls": "DataError", "classic": "SessionError",
        "other": "SessionError", "released": "SessionError", "stopped": "SessionError",
    }  # fmt: skip
    texts = {name: text for name, (_, _, text) in refused.items()}
    assert "column 'day' is a date32[day]: a tensor has no dates; select unix_date(day)" in texts["types"]
    assert texts["types"].endswith("\nits schema is struct<id:bigint,day:date,p:decimal(9,2)>")
    assert "partition 0: column 'x' has 1 null" in texts["nulls"]
    assert "cannot analyze: [UNRESOLVED_COLUMN.WITH_SUGGESTION]" in texts["query"]
    assert "is a DataFrame of the application" in texts["classic"]
    assert "is a DataFrame of the Connect session" in texts["other"]
    assert "does not answer" in texts["released"]
    assert "a session that is stopped" in texts["stopped"]
    assert not [name for name, text in texts.items() if "stacktrace" in text]
    assert seen["runs"] == ["nulls", "trained"], "only what shows in rows is found after the run has started"
