"""What is different between two runs: code, space, data, options and versions, as far as their directories have it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from sparktrain.base import formatting
from sparktrain.config.sampler_names import shown_name
from sparktrain.config.stoppers import rule_text
from sparktrain.errors import RunDirectoryError
from sparktrain.rundir.journal import reader
from sparktrain.runs import plan as plans
from sparktrain.runs.fact_changes import changed_facts, changed_space
from sparktrain.runs.history import read_overview
from sparktrain.runs.locate import RunLocation
from sparktrain.runs.plan import Plan, changed_lines
from sparktrain.state.records import DriverStarted
from sparktrain.usercode.code_changes import differences

VERSION = 1
_OPTIONS_ELSEWHERE = ("name", "metric", "mode", "seed", "gang")


@dataclass(frozen=True)
class RunSources:
    """What a run was made of."""

    place: RunLocation
    plan: Plan
    versions: Mapping[str, str]
    """Those of its newest driver."""


@dataclass(frozen=True)
class RunDifferences:
    """Two runs beside each other."""

    directories: tuple[str, str]
    sections: Mapping[str, list[str]]
    """The lines of what is different, by their subject: `name: first -> second`, `-` for what the first run has alone,
    and `+` for what the second has."""

    def lines(self) -> list[str]:
        """For people."""
        head = [f"- {formatting.plain(self.directories[0])}", f"+ {formatting.plain(self.directories[1])}"]
        if not self.sections:
            return [*head, "", "the same code, space, data, options and versions"]
        parts = [line for name, section in self.sections.items() for line in ("", f"{name}:", *_indented(section))]
        return [*head, *parts]

    def document(self) -> dict[str, Any]:
        """For programs."""
        return {"version": VERSION, "directories": list(self.directories), "differences": dict(self.sections)}


def read_sources(place: RunLocation) -> RunSources:
    """What the run was made of. Blocks on the store. Raises RunDirectoryError when it cannot be read, and OSError."""
    try:
        overview = read_overview(place.store, place.layout)
    except FileNotFoundError as error:
        raise RunDirectoryError(f"{place.where} is no run directory: it has no run.json") from error
    records = reader.read(place.store, place.layout.journal).records
    started = [record for record in records if isinstance(record, DriverStarted)]
    digest = started[-1].plan if started else str(overview["plan"])
    return RunSources(
        place,
        plans.read(place.store, place.layout, digest),
        started[-1].versions if started else {},
    )


def compare_runs(one: RunSources, other: RunSources) -> RunDifferences:
    """What is different between the runs; their names, directories and times are not. Blocks on the store for code."""
    sections = {
        "function": changed_lines(one.plan.function, other.plan.function),
        "code": _code(one, other),
        "space": _space(one.plan, other.plan),
        "sampler": changed_facts(_sampler(one.plan), _sampler(other.plan)),
        "data": changed_facts(_data(one.plan), _data(other.plan)),
        "metric": changed_facts(*(_part(source.plan, "metric", "mode") for source in (one, other))),
        "seed": changed_facts(*(_part(source.plan, "seed") for source in (one, other))),
        "gang": changed_facts(one.plan.spec["gang"], other.plan.spec["gang"]),
        "options": changed_facts(_options(one.plan), _options(other.plan)),
        "versions": changed_facts(one.versions, other.versions),
    }
    where = one.place.where, other.place.where
    return RunDifferences(where, {name: lines for name, lines in sections.items() if lines})


def _code(one: RunSources, other: RunSources) -> list[str]:
    if one.plan.parts == other.plan.parts:
        return []
    try:
        codes = [plans.read_code(source.place.store, source.place.layout, source.plan.code) for source in (one, other)]
    except RunDirectoryError as error:
        return [f"the code is different, and cannot be shown: {error}"]
    return differences((one.plan.parts, other.plan.parts), (one.plan.text, other.plan.text), (codes[0], codes[1]))


def _space(one: Plan, other: Plan) -> list[str]:
    lines = changed_lines(one.space, other.space)
    return (changed_space(one.space, other.space) or lines) if lines else []


def _part(plan: Plan, *names: str) -> dict[str, Any]:
    return {name: plan.spec.get(name) for name in names}


def _options(plan: Plan) -> dict[str, Any]:
    options = {name: value for name, value in plan.spec.items() if name not in _OPTIONS_ELSEWHERE}
    options["stopper"] = rule_text(options.get("stopper"))
    json_options: dict[str, Any] = json.loads(msgspec.json.encode({**options, "env": plan.env}))
    return json_options


def _data(plan: Plan) -> dict[str, Any]:
    facts: dict[str, Any] = {} if plan.data_version is None else {"version": plan.data_version}
    return facts if plan.data is msgspec.UNSET else {**facts, **plan.data}


def _sampler(plan: Plan) -> dict[str, Any]:
    return {} if plan.sampler is msgspec.UNSET else {"sampler": shown_name(plan.sampler)}


def _indented(lines: list[str]) -> list[str]:
    return [f"    {formatting.plain(line)}" for line in lines]
