"""The flags of absl that a script has defined, and what it has parsed."""

import os
import sys
from typing import Any

from sparktrain.base.patched_imports import patch_when_imported

_PARSED = "parsed"


def changed(module: Any) -> dict[str, Any]:
    """The flags of the script itself, pickled, and the values of other modules' flags that are no defaults.

    Modules define their flags when a trial imports them.
    """
    values: dict[str, Any] = {}
    registry = module.FLAGS
    for place, flags in registry.flags_by_module_dict().items():
        for flag in flags:
            is_imported = place in sys.modules and place != "__main__"
            if not is_imported:
                state = {name: value for name, value in vars(flag).items() if name != "validators"}
                values[flag.name] = _pickled(os.path.basename(place), type(flag), state)
            elif flag.value != flag.default:
                values[flag.name] = _pickled(place, None, {"_value": flag.value})
    if values and registry.is_parsed():
        values[_PARSED] = True
    return values


def _pickled(*parts: object) -> bytes | Exception:
    """Pickled by itself, because the classes of flags are absl's, which a trial may not have; or why it cannot be."""
    import cloudpickle  # not for commands, which compare code and have no flags

    try:
        return bytes(cloudpickle.dumps(parts))
    except Exception as error:  # whatever the user's own classes raise
        return error


def apply(module: Any, name: str, value: Any) -> None:
    """Define a flag, or give it its value once its module is imported."""
    registry = module.FLAGS
    if value is True:
        registry.mark_as_parsed()
        return
    import cloudpickle

    place, kind, state = cloudpickle.loads(value)
    if name in registry:
        _give(registry[name], state)
    elif kind is None:
        patch_when_imported(place, lambda _: _give(registry[name], state))
    else:
        flag = kind.__new__(kind)
        vars(flag).update(state, validators=[])
        registry[name] = flag
        registry.register_flag_by_module(place, flag)


def _give(flag: Any, state: dict[str, Any]) -> None:
    flag.value = state["_value"]
    flag.using_default_value = state.get("using_default_value", False)
