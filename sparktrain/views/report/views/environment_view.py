"""What a run was made of: function, space, options, data, drivers and versions."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from sparktrain.base import formatting
from sparktrain.config.sampler_names import shown_name
from sparktrain.config.stoppers import rule_text
from sparktrain.errors import SpecError
from sparktrain.runs.plan import Plan
from sparktrain.search.space_json import node_texts
from sparktrain.state.records import DriverStarted
from sparktrain.views.report.views.parameter_axes import as_text, flat
from sparktrain.views.report.views.run_inputs import RunInputs

_ELSEWHERE = ("kind", "columns", "rows")


class ColumnGroup(Struct, frozen=True):
    """The columns of one type, in their order."""

    type: str
    names: tuple[str, ...]


class DatasetRow(Struct, frozen=True, omit_defaults=True):
    """One dataset."""

    name: str
    kind: str
    """Such as `dataframe` or `parquet`."""
    columns: tuple[ColumnGroup, ...] = ()
    rows: int | None = None
    """None where the plan does not have their number: a DataFrame is counted when it is written."""
    facts: dict[str, str] = {}
    """What else identifies it, such as the digest of its files."""

    @property
    def summary(self) -> str:
        """The dataset on one line, without the names of columns."""
        parts = [self.kind]
        if self.rows is not None:
            parts.append(formatting.count(self.rows, "row"))
        parts.append(formatting.count(sum(len(group.names) for group in self.columns), "column"))
        return ", ".join([*parts, *(f"{name} {value}" for name, value in self.facts.items())])

    @property
    def columns_text(self) -> str:
        """The columns on one line."""
        return "; ".join(f"{group.type} {', '.join(group.names)}" for group in self.columns)


def dataset_rows(data: Mapping[str, Any]) -> tuple[DatasetRow, ...]:
    """The datasets of a plan, in the order of the call."""
    return tuple(_row(name, entry) for name, entry in data.items() if isinstance(entry, Mapping))


def _row(name: str, entry: Mapping[str, Any]) -> DatasetRow:
    # A line for each column filled the page, and the comparison of runs.
    groups: dict[str, list[str]] = {}
    for column, kind in entry.get("columns", {}).items():
        groups.setdefault(str(kind), []).append(column)
    rows = entry.get("rows")
    return DatasetRow(
        name=name,
        kind=str(entry.get("kind", "")),
        columns=tuple(ColumnGroup(kind, tuple(names)) for kind, names in groups.items()),
        rows=rows if isinstance(rows, int) else None,
        facts={key: _text(value) for key, value in entry.items() if key not in _ELSEWHERE and value},
    )


def _text(value: object) -> str:
    return ", ".join(f"{key} {part}" for key, part in value.items()) if isinstance(value, Mapping) else str(value)


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
    data: tuple[DatasetRow, ...] = ()
    """Its datasets."""


def environment_view(inputs: RunInputs) -> EnvironmentView:
    """What the plan, the drivers and the records show."""
    view = inputs.view
    plan = inputs.plan
    started = [record for record in inputs.records if isinstance(record, DriverStarted)]
    run = {"function": view.function, "directory": view.directory, "members of a gang": view.spec.gang.size}
    driver = view.driver.identity
    if driver is not None:
        run |= {"driver": str(driver), "sparktrain": driver.sparktrain, "user": driver.user}
    if len(started) > 1:
        run["drivers"] = len(started)
    if view.driver.board is not None:
        run["TensorBoard"] = view.driver.board
    facts = {"run": _facts(run)}
    if plan is not None:
        facts |= _of_plan(plan)
    facts["versions"] = _facts(started[-1].versions if started else {})
    return EnvironmentView(
        {name: part for name, part in facts.items() if part},
        plan.text[:100_000] if plan else "",
        dataset_rows(plan.data) if plan is not None and isinstance(plan.data, dict) else (),
    )


def _of_plan(plan: Plan) -> dict[str, tuple[Fact, ...]]:
    spec: dict[str, Any] = msgspec.to_builtins(plan.spec, enc_hook=str)
    sampler = {} if plan.sampler is msgspec.UNSET else {"sampler": shown_name(plan.sampler)}
    data = {} if plan.data_version is None else {"version": plan.data_version}
    # As a call writes it: the JSON of a rule is no text for people.
    spec["stopper"] = rule_text(spec.get("stopper"))
    options = {name: value for name, value in flat(spec).items() if value not in (None, "", [], {}, False)}
    code = {"code": plan.code[:16], "environment variables": ", ".join(plan.env)}
    return {
        "space": _facts({**sampler, **_space(plan.space)}),
        "options": _facts(options),
        "data": _facts(data),
        "code": _facts(code),
    }


def _space(document: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a stored space, or how many cases it lists."""
    values = document.get("values")
    if isinstance(values, list):
        return {"cases": len(values)}
    try:
        return dict(node_texts(dict(document)))
    except (SpecError, KeyError, TypeError, ValueError):  # of a newer version
        return flat(values) if isinstance(values, dict) else {}


def _facts(of: Mapping[str, Any]) -> tuple[Fact, ...]:
    shown = list(of.items())[:_MOST_SPACE]
    return tuple(Fact(name, as_text(value)[:_LONGEST]) for name, value in shown if value not in (None, ""))
