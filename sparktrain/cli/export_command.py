"""The command that writes the trials of a run, or their history, as a table for other programs. Wiring alone."""

import csv
import io
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

from sparktrain.cli import common
from sparktrain.cli.common import Output
from sparktrain.cli.flags import Debug, Directory, option, with_help
from sparktrain.config.panels import OUTPUT, SHOWN
from sparktrain.errors import SpecError
from sparktrain.runs.local_output import output_path, replace_file

if TYPE_CHECKING:
    from sparktrain.results.parquet_table import TableColumns
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


@with_help(EXPORT_EXAMPLES)
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
        passed = [name for name, is_set in (("csv", csv), ("jsonl", jsonl), ("parquet", parquet)) if is_set]
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
    columns = _columns(result, directory, rows)
    if form == "parquet":
        table = parquet_of(columns)
    elif form == "jsonl":
        table = _lines(result, columns, rows)
    else:
        table = as_csv(columns)
    if target is None:
        out.write(table)
    else:
        replace_file(target, table, "-o")
    if not any(len(values) for values in columns.values()):
        common.print_line(
            f"run {result.name} has no {'trials' if rows is TableRows.TRIALS else 'reports'} yet: the table has no rows"
        )
    return 0


def _columns(result: "SweepResult | RunResult", directory: str, rows: TableRows) -> "TableColumns":
    """The columns of the table, read without pandas, which this machine may lack. Blocks on the store."""
    import pyarrow as pa

    from sparktrain.results.sweep_result import trial_columns
    from sparktrain.runs.run_files import RunFiles
    from sparktrain.runs.sweep_outcome import SweepOutcome, SweepStatus

    if rows is TableRows.TRIALS:
        outcome = SweepOutcome(name=result.name, status=SweepStatus.SUCCEEDED, trials=result.trials)
        return trial_columns(result if isinstance(result, SweepOutcome) else outcome)
    if rows is TableRows.REPORTS:
        table = RunFiles(directory).report_table()
        return {name: table[name] for name in table.column_names}
    columns = RunFiles(directory).history_columns()
    times = pa.array(columns["time"]).cast(pa.timestamp("us", "UTC"))
    return {**columns, "time": pa.chunked_array([times])}


def as_csv(columns: "TableColumns") -> bytes:
    """The table as CSV. Text that a spreadsheet would take for a formula gets a quote before it."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_cell(name) for name in columns])
    writer.writerows(zip(*(map(_cell, _values(of)) for of in columns.values()), strict=True))
    return text.getvalue().encode()


def _values(column: Any) -> list[Any]:
    """The cells of a column as Python's own types."""
    if hasattr(column, "to_pylist"):
        return list(column.to_pylist())
    return list(column.tolist() if hasattr(column, "tolist") else column)


def _cell(value: Any) -> Any:
    """What CSV has for a value: nothing for None and NaN."""
    if value is None or value != value:
        return ""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@")) else value


def _lines(result: "SweepResult | RunResult", columns: "TableColumns", rows: TableRows) -> bytes:
    import msgspec

    from sparktrain.runs.results_json import trial_json

    encode = msgspec.json.Encoder().encode
    if rows is TableRows.TRIALS:
        return b"".join(encode(trial_json(trial)) + b"\n" for trial in result.trials)
    cells = zip(*map(_values, columns.values()), strict=True)
    return b"".join(encode(dict(zip(columns, row, strict=True))) + b"\n" for row in cells)
