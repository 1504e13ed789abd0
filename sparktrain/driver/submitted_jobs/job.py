"""Makes from the arguments of `sparktrain submit` a job of `jobs/` with all files that its driver needs."""

import posixpath
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any
from uuid import uuid4

from msgspec import Struct

from sparktrain.base.clock import SystemClock
from sparktrain.cluster.spark_facts import YARN
from sparktrain.config.param_files.load import GangFile, ParamsFile, load_gang, load_params
from sparktrain.config.store_address import DEFAULT_DIR
from sparktrain.driver.submitted_jobs.command import (
    MASTER_KEY,
    MODE_KEY,
    ClusterPlacement,
    Job,
    Mode,
    check_open,
    check_place,
    check_shared,
    check_uploads,
    file_of_target,
    properties_in,
    shipped,
)
from sparktrain.errors import SpecError
from sparktrain.usercode.imports import NEVER_LOCAL, imports_of_file

SERVED = "tensorflowonspark"
"""A module that the driver has from this package, and the name of its option."""
PROGRAMS = {
    "sweep": "grid_search.py",
    "run": "run_gang.py",
    "resume": "resume_run.py",
    "extend": "extend_sweep.py",
    "refit": "refit_trial.py",
}


class JobRequest(Struct, frozen=True, kw_only=True):
    """The arguments of `sparktrain submit`, not yet checked, without the environment of executors."""

    kind: str
    words: tuple[str, ...]
    """The arguments of the job itself."""
    place: Mapping[str, Any]
    """The fields of `ClusterPlacement`; None for those that were not given."""
    conf: Mapping[str, str] = {}
    properties_file: str | None = None
    files: Sequence[str] = ()
    py_files: Sequence[str] = ()


def job_of(request: JobRequest, arguments: Mapping[str, Any]) -> tuple[Job, str]:
    """The job without its pack, and its run directory. `arguments` are the job's words as its command parses them.

    Reads the files that they name. Raises SpecError.
    """
    properties = _properties(request.properties_file)
    settings = {**properties, **request.conf}
    master = request.place.get("master") or settings.get(MASTER_KEY) or YARN
    mode = request.place["mode"] or settings.get(MODE_KEY) or "client"
    place = ClusterPlacement(**{**request.place, "master": master, "mode": _mode(mode)})
    check_place(place)
    check_open(request.conf, "--conf")
    check_open([entry.partition("=")[0] for entry in arguments["conf"] or ()], f"--conf of {request.kind}")
    words, directory = _named(request, arguments, place.mode)
    moved = shipped(words, [])
    modules = list[str]()
    if place.mode is Mode.CLUSTER:
        moved = shipped(words, [*request.files, *_own_files(arguments)])
        modules = _modules_beside(arguments, request.py_files)
    job = Job(
        program=str(program(request.kind)),
        words=moved.words,
        place=place,
        conf=request.conf,
        properties_file=request.properties_file,
        properties=properties,
        files=moved.files,
        py_files=tuple(dict.fromkeys((*request.py_files, *modules))),
        python=sys.executable,
        tag=f"sparktrain-{uuid4().hex[:12]}",
    )
    check_uploads(job)
    return job, directory


def program(kind: str) -> Path:
    """The job's file: beside the package in a checkout, inside the installed package otherwise."""
    package = Path(__file__).parents[2]
    installed = package / "jobs"
    return (installed if installed.is_dir() else package.parent / "jobs") / PROGRAMS[kind]


def _named(request: JobRequest, arguments: Mapping[str, Any], mode: Mode) -> tuple[tuple[str, ...], str]:
    """The job's words, with a name of the run added if they have none, and the run directory."""
    directory = arguments.get("directory")
    if directory is not None and mode is Mode.CLUSTER:
        check_shared(directory, "the run directory")
    if directory is not None and request.kind != "refit":
        return request.words, str(directory)
    folder, name = _place_of(request.kind, arguments)
    if mode is Mode.CLUSTER:
        check_shared(folder)
    words = request.words
    if name is None:
        # the job resumes a run of the same name, so two jobs submitted in one second must have different names
        name = f"{_called(arguments)}-{SystemClock().stamp()}-{token_hex(2)}"
        words = (*words, "--name", name)
    return words, f"{(folder or DEFAULT_DIR).rstrip('/')}/{name}"


def _place_of(kind: str, arguments: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The folder of a new run and its name, where they are given; a refit is beside its sweep."""
    params = arguments.get("params")
    load: Callable[[str], ParamsFile | GangFile] = load_gang if kind == "run" else load_params
    settings = load(params).settings if params is not None else {}
    sweep_folder = posixpath.dirname(arguments["directory"].rstrip("/")) or "." if kind == "refit" else None
    return arguments["dir"] or settings.get("dir") or sweep_folder, arguments["name"] or settings.get("name")


def _called(arguments: Mapping[str, Any]) -> str:
    """How the name of a run starts: the function, or the run that it continues."""
    if "function" in arguments:
        return str(arguments["function"].rpartition(":")[2])
    return posixpath.basename(str(arguments["directory"]).rstrip("/"))


def _own_files(arguments: Mapping[str, Any]) -> list[str]:
    """The local files that the job's arguments name."""
    target = file_of_target(arguments["function"]) if "function" in arguments else None
    modules = [path.strip() for path in (arguments["py_files"] or "").split(",") if path.strip() and "://" not in path]
    return [path for path in (target, arguments.get("params"), *modules) if path is not None]


def _modules_beside(arguments: Mapping[str, Any], py_files: Sequence[str]) -> list[str]:
    """The modules beside the training file that it imports, directly or through each other.

    Raises SpecError for a package there, unless an archive in `py_files` may contain it.
    """
    target = file_of_target(arguments.get("function", ""))
    archives = [path for path in py_files if not path.endswith(".py")]
    files: dict[str, Path] = {}
    ignored = NEVER_LOCAL | ({SERVED} if arguments.get(SERVED) else set())
    waiting = [Path(target)] if target is not None else []
    while waiting:
        path = waiting.pop()
        for name in sorted({dotted.partition(".")[0] for dotted in imports_of_file(path).modules} - {*files, *ignored}):
            module = path.with_name(f"{name}.py")
            package = path.with_name(name)
            if (package / "__init__.py").is_file() and not archives:
                raise SpecError(
                    f"{path} imports {name}, a package beside it that a driver in the cluster does not have: pack it "
                    f"with `cd {package.parent} && python -m zipfile -c {name}.zip {name}`, and pass --py-files "
                    f"{package.with_suffix('.zip')}"
                )
            if module.is_file():
                files[name] = module
                waiting.append(module)
    return [str(files[name]) for name in sorted(files)]


def _properties(path: str | None) -> dict[str, str]:
    try:
        return properties_in(Path(path).read_text()) if path is not None else {}
    except OSError as error:
        raise SpecError(f"--properties-file {path} cannot be read: {error.strerror}; correct the path") from error


def _mode(text: str) -> Mode:
    try:
        return Mode(text)
    except ValueError:
        raise SpecError(f"--deploy-mode {text!r} must be {' or '.join(Mode)}") from None
