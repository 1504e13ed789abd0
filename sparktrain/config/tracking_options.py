"""What `callbacks=`, `tracking=` and `notify=` take; a part of the catalog of options."""

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from sparktrain.config.call_option import Keywords, option
from sparktrain.config.option_rules import WAIT, ValueRule
from sparktrain.config.panels import TRACKING
from sparktrain.config.param_values import described, shown
from sparktrain.errors import SpecError

METHODS = ("run_started", "trial_started", "reported", "trial_ended", "run_ended")
"""The methods of `sparktrain.Callback` that events call."""
URI_VARIABLE = "MLFLOW_TRACKING_URI"
DEFAULT_AFTER_S = 1800.0

_SERVERS = ("http", "https", "databricks", "databricks-uc")
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")


@dataclass(frozen=True, kw_only=True)
class MLflow:
    """Options of tracking by MLflow: `tracking=MLflow(uri="http://mlflow:5000", experiment="mnist")`.

    Raises SpecError for a value that breaks its rule.
    """

    uri: str | None = field(default=None, repr=False)
    """Address of the tracking server, or of its database; by default that of the variable `MLFLOW_TRACKING_URI`."""
    experiment: str = "sparktrain"
    """Name of the experiment, which sparktrain creates if it does not exist."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of the parent run."""
    log_model: Literal["best", "none"] = "best"
    """Which exported model becomes an artifact of the parent run."""

    def __post_init__(self) -> None:
        if self.log_model not in ("best", "none"):
            raise SpecError(f"log_model ({shown(self.log_model)}) must be 'best' or 'none'")
        if not self.experiment:
            raise SpecError(f"experiment is {described(self.experiment)}, a name is expected; write 'mnist'")
        tags: object = self.tags
        if not isinstance(tags, Mapping) or not all(isinstance(text, str) for pair in tags.items() for text in pair):
            raise SpecError("tags must be a dict of texts by name; write {'team': 'vision'}")

    def address(self, default: str = "") -> str:
        """The URI to use: `default` is that of the environment. Raises SpecError for none, and for one that MLflow
        cannot use here."""
        uri = default if self.uri is None else self.uri
        if not uri:
            raise SpecError(
                f"tracking by MLflow has no address: set {URI_VARIABLE}, or pass MLflow(uri='http://host:5000'); "
                "'sqlite:///mlflow.db' needs no server"
            )
        scheme = urlsplit(uri).scheme if "://" in uri else uri if uri in _SERVERS[2:] else ""
        if scheme.partition("+")[0] not in (*_SERVERS, *_DATABASES):
            raise SpecError(
                f"the MLflow URI ({scheme or 'a path'}{':...' if scheme else ''}) must start with one of "
                f"{', '.join(f'{name}://' for name in (*_SERVERS[:2], *_DATABASES))}, or be databricks; MLflow 3 keeps "
                "no runs in plain folders: write http://host:5000 or sqlite:///mlflow.db"
            )
        if scheme in ("http", "https") and not _has_host(uri):
            raise SpecError(f"the MLflow URI ({masked(uri)}) must name a host and a valid port: write http://host:5000")
        if scheme.partition("+")[0] in _DATABASES and importlib.util.find_spec("sqlalchemy") is None:
            raise SpecError(
                f"an MLflow URI of {scheme}: needs sqlalchemy and alembic, which are not installed: run "
                "pip install sqlalchemy alembic, or name a server by http://"
            )
        return uri


def masked(url: str) -> str:
    """An address without what may be a secret: user, password, path and query.

    >>> masked("https://user:word@hooks.example.org/T0/secret?token=1")
    'https://hooks.example.org/...'
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "the address"
    return f"{parts.scheme}://{host}{port}{'/...' if parts.path.strip('/') or parts.query else ''}"


def tracking(value: object, subject: str = "tracking") -> MLflow | None:
    """`value` as options of MLflow, which must be installed; "none" is None. Raises SpecError."""
    if value == "none":
        return None
    if isinstance(value, MLflow):
        options = value
    elif value == "mlflow":
        options = MLflow()
    else:
        raise SpecError(
            f"{subject} ({shown(value)}) must be 'mlflow' or sparktrain.MLflow(...); others take callbacks="
        )
    if importlib.util.find_spec("mlflow") is None:
        raise SpecError(f"{subject} needs MLflow, which is not installed: run pip install 'sparktrain[mlflow]'")
    if options.uri is not None:
        options.address()
    return options


def callbacks(value: object, subject: str = "callbacks") -> tuple[Any, ...]:
    """`value` when it is one object with a method of `Callback`, or several. Raises SpecError."""
    listed = value if isinstance(value, list | tuple) else [value]
    for hook in listed:
        if isinstance(hook, type) or not any(callable(getattr(hook, name, None)) for name in METHODS):
            raise SpecError(
                f"{subject} has {described(hook)}, an object with one of the methods {', '.join(METHODS)} is expected: "
                "pass an instance of a subclass of sparktrain.Callback"
            )
    return tuple(listed)


def notice(value: object, subject: str = "notify") -> str | Callable[[Any], object] | None:
    """`value` when it is a function, a shell command, or an http(s) address; "none" is None. Raises SpecError."""
    if value == "none":
        return None
    if callable(value) and not isinstance(value, type):
        return value
    if not isinstance(value, str) or not value.strip():
        raise SpecError(
            f"{subject} is {described(value)}; pass a function, a shell command such as 'mail -s done me', or an "
            "address such as 'https://host/hook'"
        )
    if value.startswith(("http://", "https://")) and not _has_host(value):
        raise SpecError(f"{subject} ({masked(value)}) must name a host and a valid port: write https://host/hook")
    return value


def _has_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


class CallbackKeywords(Keywords):
    """Options of calls that take callbacks of sparktrain."""

    callbacks: tuple[Any, ...] = option(
        "Objects on the driver that receive events of the run, its trials and their reports.",
        ValueRule(callbacks, "OBJECT", takes=Sequence[Any] | Any),
        default=(),
        default_text="none",
        panel=TRACKING,
        flag=None,
        in_file=False,
        details="Pass one instance of a subclass of `sparktrain.Callback`, or several; none can end or slow the run.",
        page="tracking.md",
        also=("callback", "loggers"),
    )


class TrackingKeywords(Keywords):
    """Options of all calls that train: who else learns about the run."""

    tracking: MLflow | None = option(
        "Where to track runs: mlflow, at the address in MLFLOW_TRACKING_URI.",
        ValueRule(tracking, "NAME", takes=str | MLflow),
        panel=TRACKING,
        default_text="nowhere",
        details="`MLflow(uri=..., experiment=..., tags=..., log_model=...)` sets more options.",
        page="tracking.md#mlflow",
        also=("tracker", "logger", "mlflow"),
    )
    notify: str | Callable[[Any], object] | None = option(
        "Command or https address that gets a notice when the run ends, a first trial fails, or nothing happens.",
        ValueRule(notice, "TARGET"),
        panel=TRACKING,
        default_text="nothing",
        details="In Python, it may also be a function of one argument.",
        page="tracking.md#notify",
        also=("on_end", "webhook"),
    )
    notify_after: float = option(
        "Send a notice to `notify` after this time without a report or the end of a trial.",
        WAIT,
        default=DEFAULT_AFTER_S,
        default_text="30m",
        panel=TRACKING,
        page="tracking.md#notify",
    )
