"""What a run is asked to do, as it lies in the run directory: enough to resume it, and to find out what has changed."""

import difflib
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal

import msgspec
from msgspec import Struct

from sparktrain.errors import ResumeError, RunDirectoryError, SpecError
from sparktrain.protocol.messages import Code
from sparktrain.spec.gang import GangSpec
from sparktrain.spec.sweep import SweepSpec
from sparktrain.spec.values import did_you_mean, shown
from sparktrain.store.base import Store
from sparktrain.store.layout import RunLayout

VERSION = 1
KINDS = ("code", "space", "data", "metric", "seed", "gang")
"""What may not change between two drivers of a run, unless the later one says so."""
_TOLD_LINES = 12


class Plan(Struct, frozen=True, kw_only=True):
    """What a run is asked to do."""

    version: int = VERSION
    kind: Literal["sweep", "run"]
    """The call that made it, and what it gives back."""
    function: str
    code: str
    """Digest of the `Code`."""
    parts: dict[str, str]
    """Digests of what the code consists of."""
    preload: tuple[str, ...]
    space: dict[str, Any]
    """See `search.document`."""
    data_version: str | None
    """What the user calls the data."""
    spec: dict[str, Any]
    """The fields of a `SweepSpec`."""

    def encode(self) -> bytes:
        """As it is stored: the same bytes for the same plan. The order of a space's parameters counts."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)

    @property
    def digest(self) -> str:
        """By which the plan is known."""
        return hashlib.sha256(self.encode()).hexdigest()[:16]

    @property
    def space_digest(self) -> str:
        """By which is known what the sampler proposes, and how often."""
        sampled = self.space, self.spec["trials"]
        return hashlib.sha256(msgspec.json.encode(sampled)).hexdigest()[:16]

    def sweep_spec(self) -> SweepSpec:
        """The specification. Raises SpecError when this sparktrain has other rules than the one that wrote it."""
        return SweepSpec(**{**self.spec, "gang": GangSpec(**self.spec["gang"])})


def spec_fields(spec: SweepSpec) -> dict[str, Any]:
    """The fields of a plan's `spec`."""
    return asdict(spec)


def overview(plan: Plan, space: str, trials: int | None, begun: float | None) -> bytes:
    """What `run.json` has, for people and for whoever resumes the run.

    `space` is in words, `trials` how many there will be, `begun` when the first driver began, in seconds since 1970.
    """
    spec = plan.spec
    told = {
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
        "begun": begun,
        "plan": plan.digest,
    }
    return json.dumps(told, indent=2).encode()


def write(store: Store, layout: RunLayout, plan: Plan, code: Code) -> None:
    """Store the plan and its code under their digests, unless they are there. Blocks. Raises OSError."""
    if not store.exists(layout.code(plan.code)):
        store.put_if_absent(layout.code(plan.code), msgspec.msgpack.encode(code))
    if not store.exists(layout.plan(plan.digest)):
        store.put_if_absent(layout.plan(plan.digest), plan.encode())


def read(store: Store, layout: RunLayout, digest: str) -> Plan:
    """The plan of that digest. Blocks. Raises RunDirectoryError when it is damaged, or of a newer sparktrain."""
    path = layout.plan(digest)
    try:
        content = store.read(path)
        version = json.loads(content).get("version")
        if version != VERSION:
            raise RunDirectoryError(
                f"{store.where(path)} has version {version!r}, and this sparktrain reads version {VERSION}: "
                "use the newer sparktrain that wrote it"
            )
        plan = msgspec.json.decode(content, type=Plan)
    except (FileNotFoundError, ValueError, AttributeError) as error:
        raise RunDirectoryError(f"{store.where(path)} is no plan of a run ({error}): put a copy back") from error
    if plan.digest != digest:
        raise RunDirectoryError(f"{store.where(path)} is damaged: its digest is {plan.digest}; put a copy back")
    return plan


def read_code(store: Store, layout: RunLayout, digest: str) -> Code:
    """The code of that digest, unread. Blocks. Raises RunDirectoryError when it is damaged."""
    path = layout.code(digest)
    try:
        code = msgspec.msgpack.decode(store.read(path), type=Code)
    except FileNotFoundError as error:
        where = store.where(path)
        raise RunDirectoryError(f"{where} is missing: put a copy back, or resume by the same call") from error
    except msgspec.MsgspecError as error:
        where = store.where(path)
        raise RunDirectoryError(f"{where} is damaged ({error}): put a copy back, or resume by the same call") from error
    if code.digest != digest or hashlib.sha256(code.function + code.archive).hexdigest() != digest:
        raise RunDirectoryError(f"{store.where(path)} is damaged: put a copy back, or resume by the same call")
    return code


def allowed(changes: Sequence[str]) -> frozenset[str]:
    """`changes` when each is one of `KINDS`. Raises SpecError."""
    named: Sequence[object] = [each.strip() for each in changes.split(",")] if isinstance(changes, str) else changes
    for each in named:
        if each not in KINDS:
            hint = did_you_mean(each, KINDS) if isinstance(each, str) else ""
            raise SpecError(f"allow_changed ({shown(each)}) must name what may change: {', '.join(KINDS)}{hint}")
    return frozenset(map(str, named))


def check_unchanged(old: Plan, new: Plan, where: str, allow: frozenset[str]) -> None:
    """Raises ResumeError, with what is different, when the run at `where` is not the one that is asked for."""
    found = {kind: lines for kind, lines in _differences(old, new).items() if lines and kind not in allow}
    if not found:
        return
    lines = [line for kind, told in found.items() for line in (f"{kind}:", *_shortened(told))]
    raise ResumeError(
        f"the run at {where} was begun with other {' and '.join(found)}; what has changed (- then, + now):\n"
        + "\n".join(f"    {line}" for line in lines)
        + f"\nchoose another name for a new run, or resume with allow_changed={','.join(found)!r} "
        "(--allow-changed) to use what is new for the trials that have no result"
    )


def _differences(old: Plan, new: Plan) -> dict[str, list[str]]:
    sides = [
        {
            "code": plan.parts,
            "space": plan.space["values"],
            "data": plan.data_version,
            "metric": {name: plan.spec[name] for name in ("metric", "mode")},
            "seed": plan.spec["seed"],
            "gang": {name: plan.spec["gang"][name] for name in ("workers", "ps", "evaluator", "backend")},
        }
        for plan in (old, new)
    ]
    return {kind: _diff(*(side[kind] for side in sides)) for kind in KINDS}


def _diff(old: object, new: object) -> list[str]:
    changed = difflib.ndiff(_lines(old), _lines(new))
    return [line for line in changed if line[0] in "+-"]


def _lines(value: object) -> list[str]:
    """One line for each entry, without the commas and brackets that change with its neighbours."""
    lines = (line.strip().rstrip(",") for line in json.dumps(value, indent=1, default=str).splitlines())
    return [line for line in lines if line not in ("{", "}", "[", "]")]


def _shortened(lines: list[str]) -> list[str]:
    more = len(lines) - _TOLD_LINES
    return lines if more <= 0 else [*lines[:_TOLD_LINES], f"... and {more} more lines"]
