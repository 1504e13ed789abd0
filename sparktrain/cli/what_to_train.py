"""What the commands that train are given: parameters and spaces, from flags and files."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparktrain.cli.common import CommandRequest
from sparktrain.errors import SpecError

if TYPE_CHECKING:
    from sparktrain.driver.continuation.extension import Extension
    from sparktrain.search.space import Space


@dataclass(frozen=True, kw_only=True)
class SweepCommandRequest(CommandRequest):
    """The options of `sparktrain sweep`, not yet checked."""

    grid: tuple[str, ...] = ()
    space: tuple[str, ...] = ()
    zipped: tuple[str, ...] = ()
    params: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunCommandRequest(CommandRequest):
    """The options of `sparktrain run`, not yet checked."""

    params: tuple[str, ...] = ()
    file: str | None = None


def params_of(request: RunCommandRequest) -> tuple[dict[str, Any], dict[str, Any]]:
    """The function's parameters and the settings: those of the file, and those of the command line, which prevail."""
    from sparktrain.config.param_files.load import load_gang, parse_params

    params = parse_params(request.params)
    settings = dict(request.settings)
    if request.file is not None:
        file = load_gang(request.file)
        params = {**file.params, **params}
        settings = {**file.settings, **settings}
    if "workers" not in settings:
        raise SpecError("pass how many members train: --workers N, or workers in the file of --params")
    return params, settings


def extension_of(request: SweepCommandRequest) -> "Extension":
    from sparktrain.config.param_files.load import parse_assignments, parse_space
    from sparktrain.driver.continuation.extension import Extension

    sampled = parse_space(request.space) if request.space else {}
    lists = parse_assignments(request.grid, "--grid") if request.grid else {}
    return Extension(request.settings.get("trials"), {**sampled, **lists} or None)


def space_of(request: SweepCommandRequest) -> "tuple[Space, dict[str, Any]]":
    """What to try, and the settings: those of the file, and those of the command line, which prevail."""
    from sparktrain.config.param_files.load import load_params, parse_assignments, parse_space
    from sparktrain.search.any_space import from_file
    from sparktrain.search.sampled_space import space
    from sparktrain.search.space import grid, zipped

    options = [name for name in ("grid", "space", "zipped", "params") if getattr(request, name)]
    if len(options) != 1 and options != ["grid", "space"]:
        have = " and ".join(f"--{name}".replace("zipped", "zip") for name in options) or "none of them"
        raise SpecError(
            f"pass what to try with one of --grid, --zip, --space and --params, or with --space and --grid: the call "
            f"has {have}"
        )
    if request.params is not None:
        file = load_params(request.params)
        return from_file(file), {**file.settings, **request.settings}
    if request.space:
        sampled = parse_space(request.space)
        lists = parse_assignments(request.grid, "--grid")
        if twice := sorted(sampled.keys() & lists.keys()):
            raise SpecError(f"{twice[0]!r} is given by --space and by --grid: remove one of them")
        return space({**sampled, **lists}), dict(request.settings)
    if request.grid:
        return grid(parse_assignments(request.grid, "--grid")), dict(request.settings)
    return zipped(parse_assignments(request.zipped, "--zip")), dict(request.settings)
