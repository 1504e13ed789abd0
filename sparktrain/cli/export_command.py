"""The command that writes the trials of a run, or their history, as a table for other programs. Wiring alone."""

from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

from sparktrain.cli import common
from sparktrain.cli.common import Output
from sparktrain.cli.flags import OUTPUT, SHOWN, Debug, Directory, option
from sparktrain.cli.inspect_commands import LookingCommand
from sparktrain.errors import SpecError
from sparktrain.runs.local_output import output_path, replace_file

if TYPE_CHECKING:
    import pandas as pd

    from sparktrain.results.run_result import RunResult
    from sparktrain.results.sweep_result import SweepResult

EXPORT_EXAMPLES = """\
One row for each trial, for a spreadsheet:
  sparktrain export hdfs:///runs/mnist --csv -o trials.csv
One row for each step that a trial reported:
  sparktrain export /shared/runs/mnist --csv --history -o history.csv
One row for each metric of each step, those that a newer generation has replaced included:
  sparktrain export /shared/runs/mnist --csv --reports -o reports.csv
The history as JSON, one object on each line:
  sparktrain export /shared/runs/mnist --jsonl --history
The same as Parquet, for pandas, Spark or DuckDB:
  sparktrain export /shared/runs/mnist --parquet --history -o history.parquet
"""


class TableRows(Enum):
    """What a row of the table is."""

    TRIALS = "trial"
    HISTORY = "report"
    REPORTS = "metric"


class ExportCommand(LookingCommand):
    """The help of `sparktrain export`."""

    examples = EXPORT_EXAMPLES


def export(
    directory: Directory,
    csv: Annotated[bool, option(OUTPUT, "", "Write comma-separated values, which is the default.", "--csv")] = False,
    jsonl: Annotated[bool, option(OUTPUT, "", "Write one JSON object on each line.", "--jsonl")] = False,
    parquet: Annotated[bool, option(OUTPUT, "", "Write a Parquet file.", "--parquet")] = False,
    history: Annotated[
        bool, option(SHOWN, "", "Write each step that trials reported, not each trial.", "--history")
    ] = False,
    reports: Annotated[
        bool, option(SHOWN, "", "Write each metric of each step in a row of its own.", "--reports")
    ] = False,
    output: Annotated[
        str | None, option(OUTPUT, "FILE", "Write this local file (default: stdout).", "--output", "-o")
    ] = None,
    debug: Debug = False,
) -> int:
    """Write the trials of a run, or what they reported, as a table; the run may have ended, or still run."""

    def write(out: Output) -> int:
        passed = [name for name, given in (("csv", csv), ("jsonl", jsonl), ("parquet", parquet)) if given]
        if len(passed) > 1:
            first, second = passed[:2]
            raise SpecError(f"--{first} and --{second} are two formats of one table: pass one of them")
        if history and reports:
            raise SpecError("--history and --reports are two forms of what trials reported: pass one of them")
        rows = TableRows.HISTORY if history else TableRows.REPORTS if reports else TableRows.TRIALS
        return write_table(out, directory, passed[0] if passed else "csv", rows, output)

    return common.look(write, as_json=True, debug=debug)


def write_table(out: Output, directory: str, form: str, rows: TableRows, output: str | None) -> int:
    """Write the table of a run as `csv`, `jsonl` or `parquet`.

    Blocks on the store. Raises SpecError when the file cannot be written.
    """
    from sparktrain.results.parquet_table import parquet_of
    from sparktrain.results.stored_result import load

    target = None if output is None else output_path(output, "-o")
    result = load(directory)
    frame = {TableRows.TRIALS: result.to_pandas, TableRows.HISTORY: result.history, TableRows.REPORTS: result.reports}[
        rows
    ]()
    if form == "parquet":
        table = parquet_of(frame)
    elif form == "jsonl":
        table = _lines(result, frame, rows)
    else:
        table = as_csv(frame)
    if target is None:
        out.write(table)
    else:
        replace_file(target, table, "-o")
    if frame.empty:
        common.print_line(
            f"run {result.name} has no {'trials' if rows is TableRows.TRIALS else 'reports'} yet: the table has no rows"
        )
    return 0


def as_csv(frame: "pd.DataFrame") -> bytes:
    """The table as CSV. Text that a spreadsheet would take for a formula gets a quote before it."""
    import pandas as pd

    texts = {name: frame[name].map(_plain) for name in frame.columns if not pd.api.types.is_numeric_dtype(frame[name])}
    table = frame.assign(**texts).rename(columns=_plain)
    written: str = table.to_csv(index=False, lineterminator="\n")
    return written.encode()


def _plain(cell: Any) -> Any:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@")) else cell


def _lines(result: "SweepResult | RunResult", frame: "pd.DataFrame", rows: TableRows) -> bytes:
    import msgspec

    from sparktrain.runs.results_json import trial_json

    if rows is TableRows.TRIALS:
        return b"".join(msgspec.json.encode(trial_json(trial)) + b"\n" for trial in result.trials)
    written: str = frame.to_json(orient="records", lines=True, date_format="iso", date_unit="us")
    return b"" if frame.empty else written.encode()  # pandas writes an empty line for no rows
