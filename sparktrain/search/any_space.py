"""A space from whatever a call or a parameter file gives."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from sparktrain.config.param_values import described
from sparktrain.errors import SpecError
from sparktrain.search.sampled_space import space
from sparktrain.search.space import Params, Space, cases, grid, zipped

if TYPE_CHECKING:
    from sparktrain.config.param_files.load import ParamsFile  # it reads YAML, which few calls need


def as_space(source: object) -> Space:
    """A space as it is, a dict of lists as a grid, one with distributions as a space, a list of dicts as cases.

    Raises SpecError.
    """
    if isinstance(source, Space):
        return source
    if isinstance(source, Mapping):
        return space(source) if source else grid(source)
    if isinstance(source, list | tuple):
        return cases(source)
    raise SpecError(
        f"the space is {described(source)}; pass a dict of lists such as {{'lr': [0.1, 0.01]}} or of distributions, "
        "a list of dicts, or space(), grid(), zipped() or cases()"
    )


def from_file(file: "ParamsFile") -> Space:
    """The space that a parameter file describes."""
    if file.kind == "cases":
        return cases(cast(list[Params], file.values))
    make: Any = {"grid": grid, "zip": zipped, "space": space}[file.kind]
    return cast(Space, make(file.values))
