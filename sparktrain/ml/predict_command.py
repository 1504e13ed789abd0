"""The command that predicts the rows of files with a trained model: `sparktrain predict DIR`. Wiring alone."""

from typing import TYPE_CHECKING, Annotated

import typer

from sparktrain.cli import common
from sparktrain.cli.common import EXIT_CODES, CommandRequest
from sparktrain.cli.flags import Debug, Quiet, option, with_help
from sparktrain.cli.training_flags import Conf, Master, PyFiles
from sparktrain.config.panels import MODEL, OUTPUT, ROWS

if TYPE_CHECKING:
    from sparktrain.ml.prediction import FilePrediction

EXAMPLES = """\
A table with the predictions of a run's model, on this machine:
  sparktrain predict /shared/runs/churn --input customers.parquet \\
      --output scored.parquet
Three columns of numbers side by side, on YARN:
  sparktrain predict hdfs:///runs/churn --input hdfs:///customers \\
      --columns age,visits,spent --output hdfs:///scored --master yarn
"""
ATTEMPTS = "spark.task.maxFailures=4"
"""Spark's default, in place of the patience of sessions for agents: rows that a model cannot take fail each attempt."""


@with_help(
    EXAMPLES,
    {
        0: "the predictions are written",
        1: EXIT_CODES[1],
        2: "the call is wrong: an option, a path, the model, or rows that it cannot take",
        5: EXIT_CODES[5],
        130: EXIT_CODES[130],
    },
)
def predict(
    model: Annotated[
        str, typer.Argument(metavar="DIR", help="The run directory, or a .keras file: a path or a URL of any store.")
    ],
    *,
    input: Annotated[list[str], option(ROWS, "PATH", "What Spark reads: files, or folders of them. Repeatable.")],
    output: Annotated[str, option(OUTPUT, "PATH", "Where Spark writes the rows with their predictions.")],
    format: Annotated[str, option(ROWS, "NAME", "Spark's name for the format of both (default: parquet).")] = "parquet",
    columns: Annotated[
        str | None, option(MODEL, "A,B", "The columns that feed the model (default: by name, or the one that fits).")
    ] = None,
    keep: Annotated[str | None, option(OUTPUT, "A,B", "The columns of the input to write (default: all).")] = None,
    output_column: Annotated[
        str, option(OUTPUT, "NAME", "The column of the predictions (default: prediction).")
    ] = "prediction",
    overwrite: Annotated[bool, option(OUTPUT, "", "Replace what is at --output.", "--overwrite")] = False,
    batch_size: Annotated[int, option(MODEL, "N", "How many rows the model gets at a time (default: 1024).")] = 1024,
    modules: Annotated[
        str | None, option(MODEL, "M1,M2", "Modules to import first: they register layers of your own.")
    ] = None,
    on_null: Annotated[
        str, option(ROWS, "error|null", "What a row with a null in those columns gives (default: error).")
    ] = "error",
    master: Master = None,
    conf: Conf = None,
    py_files: PyFiles = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Predict the rows of a table with the model of a run: Spark reads and writes, its Python workers predict."""
    from sparktrain.ml.prediction import FilePrediction

    request = CommandRequest(
        target="",
        settings={},
        master=master,
        conf=(ATTEMPTS, *(conf or ())),
        py_files=py_files,
        quiet=quiet,
        debug=debug,
    )
    prediction = FilePrediction(
        model=model,
        inputs=tuple(input),
        target=output,
        format=format,
        overwrite=overwrite,
        batch_size=batch_size,
        output=output_column,
        columns=_names(columns),
        keep=_names(keep),
        on_null=on_null,
        modules=_names(modules) or (),
    )
    return common.look(lambda out: perform(prediction, request), as_json=False, debug=debug)


def perform(file_prediction: "FilePrediction", request: CommandRequest) -> int:
    """Predict, and write. Blocks on Spark."""
    from sparktrain.ml.prediction import predict_files

    predict_files(file_prediction, common.prepare(request, "sparktrain predict").session)
    if not request.quiet:
        common.print_line(f"predictions of {file_prediction.model} are in {file_prediction.target}")
    return 0


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())
