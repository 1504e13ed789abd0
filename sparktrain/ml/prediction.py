"""The public calls of batch inference: a column with the predictions of a trained model, and an SQL function."""

import functools
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from sparktrain.base.boundary import users_call
from sparktrain.base.formatting import first_line
from sparktrain.base.model_kinds import kind_of
from sparktrain.base.optional_packages import is_installed
from sparktrain.cluster.spark_facts import active_session
from sparktrain.config.data_sources import is_frame
from sparktrain.config.param_values import described, did_you_mean, shown
from sparktrain.config.quantities import count
from sparktrain.errors import DataError, InfraError, MissingFileError, SessionError, SparktrainError, SpecError
from sparktrain.ml.inference.model_file import SUFFIX, ModelFile, model_at
from sparktrain.ml.inference.model_folder import ModelFolder
from sparktrain.ml.inference.model_signature import ModelSignature
from sparktrain.ml.inference.prediction_frame import predicted_frame, spark_type
from sparktrain.ml.inference.prediction_task import ModelUse
from sparktrain.ml.inference.signature_of_file import signature_in
from sparktrain.ml.inference.spark_functions import SIGNATURE_SCHEMA, signature_batches, sql_function
from sparktrain.results.run_result import RunResult
from sparktrain.results.stored_result import load
from sparktrain.results.sweep_result import SweepResult
from sparktrain.runs.trial_result import TrialResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Model = RunResult | SweepResult | TrialResult | str | os.PathLike[str]
"""What names a model."""
OnNull = Literal["error", "null"]
BATCH_SIZE = 1024
OUTPUT = "prediction"
MOST_HELD = 4
"""Models with files that a driver holds on its host."""
REUSE_KEY = "spark.python.worker.reuse"

_held: dict[str, ModelFolder] = {}
_lock = threading.Lock()
logger = logging.getLogger("sparktrain")


@users_call
def predict(
    df: "DataFrame",
    model: Model,
    *,
    output: str | Mapping[str, str] = OUTPUT,
    batch_size: int = BATCH_SIZE,
    columns: str | Sequence[str] | Mapping[str, str | Sequence[str]] | None = None,
    keep: bool | Sequence[str] = True,
    on_null: OnNull = "error",
    modules: Sequence[str] = (),
) -> "DataFrame":
    """Add the predictions of a trained model to a Spark DataFrame, classic or of Spark Connect.

    Spark's Python workers predict the rows when an action needs them. Each worker loads the model once, reads columns
    by the rules of training data, and leaves all other columns unchanged. The call itself blocks on the store that has
    the model. The first call on this machine also takes some seconds, in which a separate process determines the inputs
    of the model. If this machine has no TensorFlow, a Spark task does that.

    Args:
        df: the rows. Executors need TensorFlow and this package.
        model: the result of a run or trial, the directory of a run, or a `.keras` file, in any store that executors
            reach. For a sweep, it is the model of the best trial.
        output: the name of the new column. A model with several outputs returns a struct with a field for each; with a
            dict of names by output, each output becomes a column.
        batch_size: how many rows to predict at a time.
        columns: the columns that feed the model. By default those with the names of its inputs, or else the only one
            that fits its only input. A list has one column for each input, or, for a model with one input, columns of
            numbers that are put side by side. A dict has the columns by input. Fields of structs are `a.b`.
        keep: the columns of `df` to keep in the result: all, none, or those in a list.
        on_null: the output for a row with a null in its feature columns: `error`, which names the columns, or `null`.
        modules: modules to import before the model is loaded, here and on executors, because they register your own
            layers.

    Returns:
        A lazy DataFrame. An output with one value for each row is a column of numbers, strings or booleans. Any other
        output is a column of arrays.

    Raises:
        DataError: columns are missing, have no rule, or do not fit the model, or the model cannot be used. For wrong
            values, the action raises Spark's own error, which contains this one.
        SpecError: an argument is wrong.
        MissingFileError: the run exported no model, or the file does not exist.
        SessionError: the session is stopped.
        StoreError: the store failed; the same call may succeed later.
    """
    if not is_frame(df):
        raise SpecError(f"df is {described(df)}, a Spark DataFrame is expected: use spark.createDataFrame(table)")
    use = _use(df.sparkSession, model, batch_size, on_null, "df", modules)
    return predicted_frame(df, use, columns, output, keep)  # type: ignore[no-any-return]


@users_call
def register_predict(
    spark: "SparkSession",
    name: str,
    model: Model,
    *,
    batch_size: int = BATCH_SIZE,
    on_null: OnNull = "error",
    modules: Sequence[str] = (),
) -> Any:
    """Register an SQL function that predicts with a trained model, as in `SELECT churn(features) FROM customers`.

    The arguments of the function are the inputs of the model in their order. For a model with one input, it also
    accepts several numbers, which are put side by side. The function returns the values that `predict` puts into its
    column, and workers share a model with `predict`. Blocks and raises as `predict` does. Argument types are checked
    when a query runs.

    Args:
        spark: the session, classic or of Spark Connect.
        name: the name in SQL.
        model: see `predict`.
        batch_size: see `predict`.
        on_null: see `predict`.
        modules: see `predict`.

    Returns:
        The function for columns of DataFrames, as `spark.udf.register` returns it.
    """
    if not str(name).isidentifier():
        raise SpecError(f"name ({shown(name)}) must be a name in SQL: letters, digits and underscores, such as 'churn'")
    session = active_session(spark)
    use = _use(session, model, batch_size, on_null, f"{name}()", modules)
    return session.udf.register(name, sql_function(use, spark_type(use.signature)))


class FilePrediction(Struct, frozen=True):
    """A prediction from files to files: what `sparktrain predict` does."""

    model: str
    inputs: tuple[str, ...]
    target: str
    format: str = "parquet"
    overwrite: bool = False
    batch_size: int = BATCH_SIZE
    output: str = OUTPUT
    columns: tuple[str, ...] | None = None
    keep: tuple[str, ...] | None = None
    on_null: str = "error"
    modules: tuple[str, ...] = ()


def predict_files(prediction: FilePrediction, open_session: Callable[[], Any]) -> None:
    """Read the files with Spark, predict, and write the result with Spark. Blocks until it is written.

    `open_session` makes a session for a `with` block, after what needs none is checked. Raises as `predict`; SpecError
    where Spark refuses a path or format, DataError for rows that the model cannot take, InfraError when the job fails.
    """
    url = _url_of(prediction.model)
    with open_session() as spark:
        try:
            frame = spark.read.format(prediction.format).load(list(prediction.inputs))
            use = _use(
                spark,
                url,
                prediction.batch_size,
                prediction.on_null,
                f"the input ({', '.join(prediction.inputs)})",
                prediction.modules,
            )
            columns = (
                prediction.columns
                if prediction.columns is None or len(prediction.columns) > 1
                else prediction.columns[0]
            )
            scored = predicted_frame(
                frame, use, columns, prediction.output, True if prediction.keep is None else prediction.keep
            )
            mode = "overwrite" if prediction.overwrite else "errorifexists"
            scored.write.format(prediction.format).mode(mode).save(prediction.target)
        except SparktrainError:
            raise
        except Exception as error:  # Py4J, gRPC and Spark errors have no common root
            raise _explained(error) from error


def _explained(error: Exception) -> SparktrainError:
    """An error of Spark as one of ours: that of a task where it contains one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    error_line = next((line for line in lines if line.startswith("sparktrain.errors.")), None)
    if error_line is not None:
        kind, _, text = error_line.removeprefix("sparktrain.errors.").partition(": ")
        return (DataError if kind == "DataError" else InfraError)(text or kind)
    refused = "AnalysisException" in {base.__name__ for base in type(error).__mro__}
    return SpecError(f"Spark refuses the call: {lines[0]}") if refused else InfraError(f"the job failed: {lines[0]}")


def _use(
    session: "SparkSession", model: Model, batch_size: int, on_null: str, subject: str, modules: object
) -> ModelUse:
    """The model and how to use it, after all checks that need no columns."""
    active_session(session)
    count(batch_size, "batch_size", least=1)
    if on_null not in ("error", "null"):
        raise SpecError(
            f"on_null ({shown(on_null)}) must be 'error' or 'null'{did_you_mean(on_null, ('error', 'null'))}"
        )
    if isinstance(modules, str) or not isinstance(modules, Sequence) or not all(isinstance(m, str) for m in modules):
        raise SpecError(f"modules is {described(modules)}; pass a list of names, such as ['churn.layers']")
    file, signature = _opened(_url_of(model), session, tuple(modules))
    _check_reuse(session)
    return ModelUse(file, signature, batch_size, on_null == "null", subject)


def _url_of(model: Model) -> str:
    """The path or URL of the model's file. Raises SpecError, MissingFileError, and what `load` raises."""
    result = model
    if isinstance(model, str | os.PathLike):
        url = os.fspath(model)
        if url.endswith(SUFFIX) or Path(url).expanduser().is_file():
            return url
        result = load(url)
    if isinstance(result, SweepResult):
        result = result.best
    if not isinstance(result, RunResult | TrialResult):
        shown_model = described(model) if (kind := kind_of(model)) is None else f"{kind} ({type(model).__name__})"
        raise SpecError(
            f"model is {shown_model}; pass the result of a run, its directory, or a {SUFFIX} file, which the save() of "
            "a Keras model writes"
        )
    path = result.model_path
    if path is None:
        name = result.directory if isinstance(result, RunResult) else f"trial {result.id}"
        trial = result.trial if isinstance(result, RunResult) else result
        raise MissingFileError(f"{name} has no model: {'see sparktrain status' if trial is None else trial.no_model}")
    return path


def _opened(url: str, session: "SparkSession", modules: tuple[str, ...]) -> tuple[ModelFile, ModelSignature]:
    """The file, and what the model takes and gives."""
    file, folder = model_at(url, modules)
    _keep_held(file.sha256, folder)
    if is_installed("tensorflow"):
        return file, signature_in(file, folder)
    rows = session.range(0, 1, 1, 1).mapInArrow(functools.partial(signature_batches, model=file), SIGNATURE_SCHEMA)
    return file, ModelSignature.decoded(bytes(rows.collect()[0].signature))


def _keep_held(digest: str, folder: ModelFolder) -> None:
    """Keep the files of the models of the last calls, so that programs may alternate between models."""
    with _lock:
        if (former_folder := _held.pop(digest, None)) is not None:
            former_folder.release()
        _held[digest] = folder
        while len(_held) > MOST_HELD:
            _held.pop(next(iter(_held))).release()


def _check_reuse(session: "SparkSession") -> None:
    """Warn when workers end with their tasks. Raises SessionError when the session cannot be asked."""
    try:
        reuse = session.conf.get(REUSE_KEY, "true")
    except Exception as error:  # Py4J, gRPC and Spark errors have no common root
        reason = first_line(error)
        raise SessionError(f"the SparkSession cannot be used ({reason}): make a new one") from error
    if str(reuse).lower() == "false":
        logger.warning("%s is false: each task loads the model again, which takes seconds; set it to true", REUSE_KEY)
