"""The first stage of a run that its directory defines: `resume` and `extend`."""

from collections.abc import Mapping

import msgspec

from sparktrain.config.option_catalog import ExtendKeywords, ResumeKeywords
from sparktrain.driver.continuation.extension import Extension
from sparktrain.driver.forwarded_env import environment
from sparktrain.driver.prepare.checked_call import (
    CheckedCall,
    CoordinatorRequest,
    Observers,
    ResumeRules,
    SlotRequest,
)
from sparktrain.driver.prepare.run_definition import RunDefinition, sampler_choice
from sparktrain.errors import ResumeError, RunDirectoryError, SpecError
from sparktrain.runs import plan as plans
from sparktrain.runs.history import look, this_driver
from sparktrain.runs.locate import run_in
from sparktrain.runs.plan import Plan, spec_fields
from sparktrain.search.named_samplers import stored_choice
from sparktrain.search.space_json import from_document, to_document


def compose_again(
    directory: str, keywords: ResumeKeywords | ExtendKeywords, extension: Extension | None = None
) -> CheckedCall:
    """The run that a directory holds, to resume it as it was started. Blocks on the store.

    With an `extension`, it has more trials or a wider space than it was started with; once, also where YARN starts the
    driver again.

    Raises RunDirectoryError when there is none, or it cannot be read; SpecError when its space was too large to store,
    for a limit that its kind does not have, or for TensorBoard that is not installed; ResumeError when trials lack
    variables that they were started with.
    """
    env = environment(keywords.env, keywords.forward_env)
    observers = Observers.of(keywords)
    location = run_in(directory)
    stored_run = look(location.store, location.layout)
    if stored_run is None:
        raise RunDirectoryError(f"{directory} is no longer a run directory: its run.json was deleted")
    plan = stored_run.plan
    code = plans.read_code(location.store, location.layout, plan.code)
    sampler = None if plan.sampler is msgspec.UNSET else stored_choice(plan.sampler)
    notes = tuple[str, ...]()
    # A driver that YARN starts again makes the same call: it would add the trials a second time.
    if extension is not None and stored_run.extended_before(this_driver()):
        extension = None
        notes = ("was extended by the driver that this one replaces",)
    if extension is None:
        spec = plan.sweep_spec()
        space = from_document(plan.space)
    else:
        spec, space, notes = extension.of(stored_run)
        sampler_choice(sampler, spec).sampler(space)  # raises where it cannot do so many trials, or this space
        plan = msgspec.structs.replace(plan, spec=spec_fields(spec), space=to_document(space, spec.trials))
    _check_variables(plan, env)
    _check_limit(keywords, plan.kind, location.where)
    return CheckedCall(
        definition=RunDefinition(
            plan=plan,
            spec=spec,
            space=space,
            code=code,
            store=location.store,
            layout=location.layout,
            sampler=sampler,
        ),
        resume_rules=ResumeRules(
            allow_changed=frozenset() if extension is None else frozenset({"space"}),
            retry_failed=keywords.retry_failed,
            extends=extension is not None,
        ),
        observers=observers,
        env=env,
        coordinator=CoordinatorRequest(keywords.coordinator, directory),
        slots=SlotRequest(
            agents=_agents(keywords),
            concurrent=keywords.max_concurrent_trials,
            weight=keywords.weight,
            priority=keywords.priority,
        ),
        notes=notes,
    )


def _check_variables(plan: Plan, env: Mapping[str, str]) -> None:
    if missing := [name for name in plan.env if name not in env]:
        raise ResumeError(
            "the run was started with variables for its trials, and their values are not stored: pass "
            f"{', '.join(missing)} by env= (--env {missing[0]}, to take it from here)"
        )


def _check_limit(keywords: ResumeKeywords | ExtendKeywords, kind: str, where: str) -> None:
    """Raise SpecError for a limit of the resuming call that a run of this kind does not have."""
    # `agents` of a sweep was read as trials at a time, and counted agents: each kind has a limit of its own name.
    option = "agents" if kind == "run" else "max_concurrent_trials"
    limits = {"max_concurrent_trials": keywords.max_concurrent_trials, "agents": _agents(keywords)}
    for name, value in limits.items():
        if value is not None and name != option:
            other_kind = "sweep" if kind == "run" else "run"
            raise SpecError(f"{name} ({value}) is for a {other_kind}, and {where} holds a {kind}: pass {option}")


def _agents(keywords: ResumeKeywords | ExtendKeywords) -> int | None:
    return keywords.agents if isinstance(keywords, ResumeKeywords) else None
