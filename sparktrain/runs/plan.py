"""What a run must do, as the run directory stores it: enough to resume the run, and to find out what has changed."""

import difflib
import hashlib
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from itertools import takewhile
from typing import Any, Literal

import msgspec
from msgspec import Struct

from sparktrain.base.decoding import from_json, from_msgpack
from sparktrain.config.call_option import settled
from sparktrain.config.gang_options import STORED_KEYS, MemberKeywords
from sparktrain.config.gang_spec import GangSpec
from sparktrain.config.option_rules import CHANGES
from sparktrain.config.replication import Replication
from sparktrain.config.stoppers import encoded
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.errors import ResumeError, RunDirectoryError
from sparktrain.protocol.messages import Code
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs.fact_changes import changed_space
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.store.base import Store

VERSION = 1
_SHOWN_LINES = 12
_GANG = ("workers", "ps", "evaluator", "backend", "ps_mode", "backup_workers", "local_steps")
"""What must not change of the gang."""
_COMPARED_LINES = 40
"""Longer texts are compared without pairing lines that resemble each other."""


class KnownResult(Struct, frozen=True):
    """A result of a former trial."""

    params: dict[str, Any]
    status: str
    value: float
    step: int | None = None


class WarmPlan(Struct, frozen=True):
    """What the plan of a run has of its warm start."""

    sources: tuple[str, ...]
    """Directories, and tables and points by their digests."""
    lines: tuple[str, ...]
    """What became of each source, for the first lines of the run."""
    points: tuple[dict[str, Any], ...]
    metric: str | None
    known: tuple[KnownResult, ...]
    runs: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """The id of the run of each source, and empty for tables and points; absent where an older sparktrain wrote it."""


class Origin(Struct, frozen=True):
    """The checkpoint of another run that a run starts from: it is copied before the first gang."""

    directory: str
    trial: int
    checkpoint: Checkpoint


class RefitTrial(Struct, frozen=True):
    """The trial of another run: this run trains its parameters from step 0."""

    directory: str
    trial: int


class Plan(Struct, frozen=True, kw_only=True):
    """What a run must do."""

    version: int = VERSION
    kind: Literal["sweep", "run"]
    """The call that made it, which decides what it returns."""
    function: str
    code: str
    """The digest of the `Code`."""
    parts: dict[str, str]
    """The digests of the parts of the code."""
    preload: tuple[str, ...]
    space: dict[str, Any]
    """See `search.document`."""
    data_version: str | None
    """The user's name for the version of the data."""
    spec: dict[str, Any]
    """The fields of a `SweepSpec`."""
    text: str = ""
    """The source of the function, for people; see `code_changes.text_of`."""
    data: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """A description of each dataset; absent without any."""
    sampler: str | msgspec.UnsetType = msgspec.UNSET
    """The name of the sampler, see `search.named_samplers`; absent where it tries every combination."""
    warm: WarmPlan | msgspec.UnsetType = msgspec.UNSET
    """What the sampler knew at the start; absent without a warm start."""
    origin: Origin | msgspec.UnsetType = msgspec.UNSET
    """Where the run starts from; absent where it starts at step 0."""
    refit: RefitTrial | msgspec.UnsetType = msgspec.UNSET
    """Of a refit that starts at step 0; absent in any other run."""
    env: tuple[str, ...] = ()
    """The names of the variables that trials get; their values, which may be secrets, are stored nowhere."""

    def encode(self) -> bytes:
        """The plan as it is stored: the same bytes for the same plan. The order of a space's parameters counts."""
        # Not with sorted keys: a space with parameters in another order was refused as another one.
        return msgspec.json.format(msgspec.json.encode(self), indent=2)

    @property
    def digest(self) -> str:
        """The name of the plan in the run directory."""
        return hashlib.sha256(self.encode()).hexdigest()[:16]

    @property
    def space_digest(self) -> str:
        """Identifies what the sampler proposes, and how often."""
        sampled = self.space, self.spec["trials"]
        return hashlib.sha256(msgspec.json.encode(sampled)).hexdigest()[:16]

    def sweep_spec(self) -> SweepSpec:
        """The specification. Raises SpecError when this sparktrain has other rules than the one that wrote it."""
        fields = dict(self.spec)
        options = {name: fields.pop(key) for name, key in STORED_KEYS.items() if key in fields}
        member_options = settled(MemberKeywords, options, "the plan")
        return SweepSpec(**fields | {"gang": GangSpec(**fields["gang"]), "member_options": member_options})


def spec_fields(spec: SweepSpec) -> dict[str, Any]:
    """The fields of a plan's `spec`."""
    modes = {objective.metric: objective.mode for objective in spec.other_metrics}
    bounds = [str(constraint) for constraint in spec.constraints]
    fields: dict[str, Any] = {}
    for name, value in asdict(spec).items():
        if name == "notice" and value is None:
            continue  # plans of an older sparktrain have none, and keep their digests
        if name == "gang" and not value["standby"]:
            value = {key: entry for key, entry in value.items() if key != "standby"}  # as above
        # In the place of their record, and not at the end: the digest of a plan depends on the order.
        is_record = name == "member_options"
        fields |= {STORED_KEYS[option]: value[option] for option in value} if is_record else {name: value}
    return fields | {"stopper": encoded(spec.stopper), "other_metrics": modes or (), "constraints": bounds}


def overview(plan: Plan, space: str, trials: int | None, started: float | None) -> bytes:
    """The content of `run.json`, for people and for a resume.

    `space` is its text, `trials` how many there will be, `started` when the first driver started, in seconds since
    1970.
    """
    spec = plan.spec
    content = {
        "version": VERSION,
        "name": spec["name"],
        "kind": plan.kind,
        "function": plan.function,
        "space": space,
        "metric": spec["metric"],
        "mode": spec["mode"],
        "seed": spec["seed"],
        "gang": spec["gang"],
        "trials": trials,
        "started": started,
        "plan": plan.digest,
    }
    return json.dumps(content, indent=2).encode()


def write(store: Store, layout: RunLayout, plan: Plan, code: Code) -> None:
    """Store the plan and its code under their digests, unless they are there. Blocks. Raises OSError."""
    # The code first: a plan that is there names code that is there.
    if not store.exists(layout.code(plan.code)):
        store.put_if_absent(layout.code(plan.code), msgspec.msgpack.encode(code))
    write_plan(store, layout, plan)


def write_plan(store: Store, layout: RunLayout, plan: Plan) -> None:
    """Store the plan under its digest, unless it is there. Blocks. Raises OSError."""
    if not store.exists(layout.plan(plan.digest)):
        store.put_if_absent(layout.plan(plan.digest), plan.encode())


def read(store: Store, layout: RunLayout, digest: str) -> Plan:
    """The plan of that digest, for a run with the name of its folder. Blocks.

    Raises RunDirectoryError when it is corrupt, or of a newer sparktrain.
    """
    path = layout.plan(digest)
    try:
        content = store.read(path)
        version = json.loads(content).get("version")
        if version != VERSION:
            raise RunDirectoryError(
                f"{store.where(path)} has version {version!r}, and this sparktrain reads version {VERSION}: "
                "use the newer sparktrain that wrote it"
            )
        plan = from_json(content, Plan)
    except (FileNotFoundError, ValueError, AttributeError) as error:
        raise RunDirectoryError(f"{store.where(path)} is no plan of a run ({error}): put a copy back") from error
    if plan.digest != digest:
        raise RunDirectoryError(f"{store.where(path)} is corrupt: its digest is {plan.digest}; put a copy back")
    # A directory that was renamed or copied: the run has the name of its folder, into which members write.
    if plan.spec["name"] != layout.path:
        plan = msgspec.structs.replace(plan, spec=plan.spec | {"name": layout.path})
    return plan


def read_code(store: Store, layout: RunLayout, digest: str) -> Code:
    """The code of that digest, unread. Blocks. Raises RunDirectoryError when it is corrupt."""
    path = layout.code(digest)
    try:
        code = from_msgpack(store.read(path), Code)
    except FileNotFoundError as error:
        where = store.where(path)
        raise RunDirectoryError(f"{where} is missing: put a copy back, or resume by the same call") from error
    except msgspec.MsgspecError as error:
        where = store.where(path)
        raise RunDirectoryError(f"{where} is corrupt ({error}): put a copy back, or resume by the same call") from error
    if code.digest != digest or hashlib.sha256(code.function + code.archive).hexdigest() != digest:
        raise RunDirectoryError(f"{store.where(path)} is corrupt: put a copy back, or resume by the same call")
    return code


def check_unchanged(
    old: Plan,
    new: Plan,
    where: str,
    allow: frozenset[str],
    code_lines: Callable[[], list[str]] | None = None,
    count_failed: Callable[[], int] = int,
    data_lines: Callable[[], list[str]] | None = None,
) -> None:
    """Raises ResumeError, with what is different, when the run at `where` is not the one that is asked for.

    `code_lines` makes the lines about changed code, and is called only for it; `data_lines` those about changed files
    of the data, in place of their digests. `count_failed` is called for an error only.
    """
    past, now = (Replication(plan.spec.get("repeats", 1), plan.spec.get("folds", 1)) for plan in (old, new))
    if past != now:
        raise ResumeError(
            f"the run at {where} was started with repeats={past.repeats} and folds={past.folds}, and this call has "
            f"repeats={now.repeats} and folds={now.folds}: the numbers of its trials follow from both; pass the same, "
            "or choose another name for a new run"
        )
    diffs = {kind: lines for kind, lines in _differences(old, new, allow).items() if lines}
    if not diffs:
        return
    if "code" in diffs and code_lines is not None:
        diffs["code"] = code_lines()
    if "data" in diffs and data_lines is not None and (files := data_lines()):
        diffs["data"] = [*files, *(line for line in diffs["data"] if not line[2:].startswith('"files": '))]
    shown = {kind: part if kind == "code" else _shortened(part) for kind, part in diffs.items()}
    step = _retry_step(count_failed()) if set(diffs) == {"code"} else ""
    lines = [line for kind, part in shown.items() for line in (f"{kind}:", *part)]
    raise ResumeError(
        f"the run at {where} was started with other {' and '.join(diffs)}; what has changed (- then, + now):\n"
        + "\n".join(f"    {line}" for line in lines)
        + f"\n{step}choose another name for a new run, or resume with "
        f"allow_changed={','.join(diffs)!r} (--allow-changed) to use what is new for the trials that have no result"
    )


def _retry_step(failed: int) -> str:
    """The next step after a fix of the training function."""
    if not failed:
        return ""
    trials = "the trial that failed" if failed == 1 else f"the {failed} trials that failed"
    return f"pass retry_failed=True (--retry-failed) to retry {trials} with the new code, and keep other results; "


def _differences(old: Plan, new: Plan, allow: frozenset[str]) -> dict[str, list[str]]:
    """The lines of what has changed, for each kind that must not."""
    sides = [
        {
            "code": plan.parts,
            "space": plan.space["values"],
            "data": _data_of(plan),
            "metric": {name: plan.spec[name] for name in ("metric", "mode")},
            "seed": plan.spec["seed"],
            "gang": {name: plan.spec["gang"].get(name, getattr(GangSpec, name)) for name in _GANG},
        }
        for plan in (old, new)
    ]
    diffs = {kind: changed_lines(*(side[kind] for side in sides)) for kind in CHANGES if kind not in allow}
    if diffs.get("space"):
        diffs["space"] = changed_space(old.space, new.space) or diffs["space"]
    return diffs


def _data_of(plan: Plan) -> object:
    """What must not change of the data."""
    if plan.data is msgspec.UNSET:
        return plan.data_version
    return {"data_version": plan.data_version, "data": plan.data}


def changed_lines(old: object, new: object) -> list[str]:
    """The changed lines, in linear time: `ndiff` takes hours for lists of thousands of cases."""
    old_lines, now = _changed(_lines(old), _lines(new))
    if max(len(old_lines), len(now)) <= _COMPARED_LINES:
        return [line for line in difflib.ndiff(old_lines, now) if line[0] in "+-"]
    deletions = Counter(old_lines) - Counter(now)
    insertions = Counter(now) - Counter(old_lines)
    if not deletions and not insertions:  # the same lines in another order
        deletions = Counter(old_lines[:1])
        insertions = Counter(now[:1])
    # Each side gets half of the lines, and what the other one leaves.
    removed = [f"- {line}" for line in deletions.elements()]
    added = [f"+ {line}" for line in insertions.elements()]
    shown = max(_SHOWN_LINES // 2, _SHOWN_LINES - len(added))
    return [*removed[:shown], *added, *removed[shown:]]


def _changed(old_lines: list[str], now: list[str]) -> tuple[list[str], list[str]]:
    """Both without their common start and end."""
    pairs = list(zip(old_lines, now, strict=False))
    head = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    reversed_pairs = zip(reversed(old_lines[head:]), reversed(now[head:]), strict=False)
    tail = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], reversed_pairs))
    return old_lines[head : len(old_lines) - tail], now[head : len(now) - tail]


def _lines(value: object) -> list[str]:
    """One line for each entry, without the commas and brackets that change with its neighbours."""
    lines = (line.strip().rstrip(",") for line in json.dumps(value, indent=1, default=str).splitlines())
    return [line for line in lines if line not in ("{", "}", "[", "]")]


def _shortened(lines: list[str]) -> list[str]:
    hidden_count = len(lines) - _SHOWN_LINES
    return lines if hidden_count <= 0 else [*lines[:_SHOWN_LINES], f"... and {hidden_count} more lines"]
