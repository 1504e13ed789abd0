"""What a run was made of: function, space, options, data, drivers and versions."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from sparktrain.config.sampler_names import shown_name
from sparktrain.report.views.parameter_axes import as_text, flat
from sparktrain.report.views.run_inputs import RunInputs
from sparktrain.runs.plan import Plan
from sparktrain.state.records import DriverStarted

_LONGEST = 400
_MOST_SPACE = 60


class Fact(Struct, frozen=True):
    """A name and its value, both text."""

    name: str
    value: str


class EnvironmentView(Struct, frozen=True, omit_defaults=True):
    """Facts by their subject, and the source of the function."""

    facts: dict[str, tuple[Fact, ...]]
    """By subject, such as `versions`."""
    source: str = ""
    """The source of the training function, where the plan has it."""


def environment_view(inputs: RunInputs) -> EnvironmentView:
    """What the plan, the drivers and the records show."""
    view, plan = inputs.view, inputs.plan
    started = [record for record in inputs.records if isinstance(record, DriverStarted)]
    run = {"function": view.function, "directory": view.directory, "members of a gang": view.gang}
    if view.driver is not None:
        run |= {"driver": str(view.driver), "sparktrain": view.driver.sparktrain, "user": view.driver.user}
    if len(started) > 1:
        run["drivers"] = len(started)
    if view.board is not None:
        run["TensorBoard"] = view.board
    facts = {"run": _facts(run)}
    if plan is not None:
        facts |= _of_plan(plan)
    facts["versions"] = _facts(started[-1].versions if started else {})
    return EnvironmentView({name: found for name, found in facts.items() if found}, plan.text[:100_000] if plan else "")


def _of_plan(plan: Plan) -> dict[str, tuple[Fact, ...]]:
    spec: dict[str, Any] = msgspec.to_builtins(plan.spec, enc_hook=str)
    values = plan.space.get("values")
    space = {name: _spread(each) for name, each in values.items()} if isinstance(values, dict) else {}
    if isinstance(values, list):
        space = {"cases": len(values)}
    sampler = {} if plan.sampler is msgspec.UNSET else {"sampler": shown_name(plan.sampler)}
    data = {} if plan.data_version is None else {"version": plan.data_version}
    if plan.data is not msgspec.UNSET:
        data |= plan.data
    options = {name: each for name, each in flat(spec).items() if each not in (None, "", [], {}, False)}
    code = {"code": plan.code[:16], "environment variables": ", ".join(plan.env)}
    return {
        "space": _facts({**sampler, **space}),
        "options": _facts(options),
        "data": _facts(flat(data)),
        "code": _facts(code),
    }


def _spread(node: object) -> object:
    """A list or a distribution of a stored space in few words."""
    if isinstance(node, dict) and len(node) == 1:
        ((kind, arguments),) = node.items()
        if isinstance(arguments, list):
            return f"{kind}({', '.join(map(as_text, arguments))})"
    return node


def _facts(of: Mapping[str, Any]) -> tuple[Fact, ...]:
    shown = list(of.items())[:_MOST_SPACE]
    return tuple(Fact(name, as_text(value)[:_LONGEST]) for name, value in shown if value not in (None, ""))
