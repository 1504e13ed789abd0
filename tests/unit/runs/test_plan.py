"""What a run is asked to do: stored once under its digest, read back whole, and compared part by part."""

from dataclasses import replace

import pytest

from sparktrain.config.backends import Backend
from sparktrain.config.gang_options import MEMBER_DEFAULTS
from sparktrain.config.gang_spec import GangSpec
from sparktrain.config.option_rules import CHANGES
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.errors import ResumeError, RunDirectoryError, SpecError
from sparktrain.protocol.messages import Code
from sparktrain.rundir.layout import RunLayout
from sparktrain.runs import plan as plans
from sparktrain.runs.plan import Plan, check_unchanged, spec_fields
from sparktrain.search.space import grid
from sparktrain.search.space_json import from_document
from tests.unit.store.gated import MemoryStore

LAYOUT = RunLayout("run")
CODE = Code("3d5a2be0e9a1b2c6e7a5c2cba5ea59b8a0be7e4da1a43ab9d0a2ba1c4ca4f7d5", b"f")


ORDER = {"kind": "grid", "values": {"a": [True], "x": [1, 2.0, None, "a"]}}


def plan(**changes: object) -> Plan:
    spec = SweepSpec(name="run", metric="y", mode="max", seed=3, gang=GangSpec(workers=2, backend=Backend.TENSORFLOW))
    values = {
        "kind": "sweep",
        "function": "train",
        "code": CODE.digest,
        "parts": {"function train": "a1", "model.py": "b2"},
        "preload": ("numpy",),
        "space": {"kind": "grid", "values": {"x": [1, 2.0, None, "a"], "a": [True]}},
        "data_version": None,
        "spec": spec_fields(spec),
    }
    return Plan(**{**values, **changes})  # type: ignore[arg-type]


def with_spec(**changes: object) -> Plan:
    return plan(spec={**plan().spec, **changes})


def test_what_is_written_is_read_back() -> None:
    store, made = MemoryStore(), plan()
    plans.write(store, LAYOUT, made, CODE)
    plans.write(store, LAYOUT, made, CODE)
    again = plans.read(store, LAYOUT, made.digest)
    assert again.digest == made.digest
    assert list(from_document(again.space)) == list(grid(x=[1, 2.0, None, "a"], a=[True]))
    assert again.space_digest == made.space_digest != plan(space=ORDER).space_digest
    assert again.sweep_spec() == SweepSpec(
        name="run", metric="y", mode="max", seed=3, gang=GangSpec(workers=2, backend=Backend.TENSORFLOW)
    )
    check_unchanged(again, made, "here", frozenset())


def test_options_of_members_are_stored_by_the_keys_of_earlier_versions() -> None:
    stored = with_spec(log_limit_bytes=4096)
    assert stored.sweep_spec().member_options == replace(MEMBER_DEFAULTS, log_limit=4096)
    assert spec_fields(stored.sweep_spec()) == stored.spec
    assert stored.digest == plan(spec=spec_fields(stored.sweep_spec())).digest
    older = plan(spec={name: value for name, value in plan().spec.items() if name != "log_limit_bytes"})
    assert older.sweep_spec().member_options == MEMBER_DEFAULTS
    with pytest.raises(SpecError, match="log_limit"):
        with_spec(log_limit_bytes=0).sweep_spec()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "is no plan of a run"),
        (b"{}", "version None"),
        (b"[]", "is no plan of a run"),
        (b'{"version": 2}', "newer sparktrain"),
        (b'{"version": 1}', "is no plan of a run"),
        (plan(function="other").encode(), "is corrupt"),
    ],
)
def test_an_unreadable_plan_is_refused(content: bytes | None, words: str) -> None:
    store = MemoryStore()
    if content is not None:
        store.put_if_absent(LAYOUT.plan(plan().digest), content)
    with pytest.raises(RunDirectoryError, match=words):
        plans.read(store, LAYOUT, plan().digest)


@pytest.mark.parametrize("content", [None, b"x", b"\x80"])
def test_unreadable_code_is_refused(content: bytes | None) -> None:
    store = MemoryStore()
    if content is not None:
        store.put_if_absent(LAYOUT.code(CODE.digest), content)
    with pytest.raises(RunDirectoryError, match="put a copy back"):
        plans.read_code(store, LAYOUT, CODE.digest)


DIFFERENT = {
    "code": (plan(parts={"function train": "a1", "model.py": "b3"}), ['- "model.py": "b2"', '+ "model.py": "b3"']),
    "space": (
        plan(space={"kind": "grid", "values": {"x": [1, 2.0, None, "a", 5], "a": [True]}}),
        ['x: [1, 2.0, null, "a"] -> [1, 2.0, null, "a", 5]'],
    ),
    "data": (plan(data_version="v2"), ["- null", '+ "v2"']),
    "metric": (with_spec(mode="min"), ['- "mode": "max"', '+ "mode": "min"']),
    "seed": (with_spec(seed=4), ["- 3", "+ 4"]),
    "gang": (with_spec(gang={**plan().spec["gang"], "workers": 3}), ['- "workers": 2', '+ "workers": 3']),
}  # fmt: skip


def test_a_plan_of_an_older_version_has_the_defaults_of_what_it_lacks() -> None:
    gang = plan().spec["gang"]
    old = with_spec(gang={name: gang[name] for name in ("workers", "ps", "evaluator", "backend")})
    check_unchanged(old, plan(), "/runs/run", frozenset())
    with pytest.raises(ResumeError, match='- "local_steps": null'):
        check_unchanged(old, with_spec(gang={**gang, "local_steps": 8}), "/runs/run", frozenset())


def test_each_kind_of_change_is_tried() -> None:
    assert set(DIFFERENT) == set(CHANGES)


@pytest.mark.parametrize("kind", DIFFERENT)
def test_a_change_is_refused_with_what_has_changed_unless_it_is_allowed(kind: str) -> None:
    changed, lines = DIFFERENT[kind]
    with pytest.raises(ResumeError, match=f"started with other {kind}") as caught:
        check_unchanged(plan(), changed, "/runs/run", frozenset(CHANGES) - {kind})
    for line in lines:
        assert f"\n    {line}\n" in str(caught.value)
    assert f"allow_changed='{kind}'" in str(caught.value)
    check_unchanged(plan(), changed, "/runs/run", frozenset({kind}))


def test_changes_of_several_kinds_are_listed_together_and_long_ones_are_cut() -> None:
    changed = plan(
        data_version="v2", space={"kind": "grid", "values": {f"x{number}": [number] for number in range(100)}}
    )
    with pytest.raises(ResumeError, match="other space and data") as caught:
        check_unchanged(plan(), changed, "/runs/run", frozenset())
    assert "more lines" in str(caught.value)
    assert len(str(caught.value).splitlines()) < 25


def cases(*values: int) -> Plan:
    return plan(space={"kind": "cases", "values": [{"lr": value / 7, "seed": value} for value in values]})


def changes_of(old: Plan, new: Plan) -> list[str]:
    """The lines of the error that list the changes."""
    with pytest.raises(ResumeError, match="started with other space") as caught:
        check_unchanged(old, new, "/runs/run", frozenset())
    return [line.strip() for line in str(caught.value).splitlines() if line.startswith("    ")][1:]


MANY = 10_000


@pytest.mark.timeout(60)
def test_ten_thousand_cases_are_compared_at_once() -> None:
    """All of them have changed, which took hours; where that is allowed they are not even compared."""
    old, new = cases(*range(MANY)), cases(*range(MANY, 2 * MANY))
    lines = changes_of(old, new)
    assert lines[0] == '- "lr": 0.0'
    assert sum(line.startswith("- ") for line in lines) == sum(line.startswith("+ ") for line in lines) == 6
    assert lines[12:] == [f"... and {4 * MANY - 12} more lines"]
    check_unchanged(old, new, "/runs/run", frozenset({"space"}))


def test_one_case_that_has_changed_of_many_is_named() -> None:
    new = [*range(MANY // 2), 99_999, *range(MANY // 2 + 1, MANY)]
    assert {'- "seed": 5000', '+ "seed": 99999'} < set(changes_of(cases(*range(MANY)), cases(*new)))


def test_one_case_more_or_less_of_many_is_named() -> None:
    fewer = changes_of(cases(*range(MANY)), cases(*range(MANY - 1)))
    assert fewer[-1] == '- "seed": 9999'
    more = changes_of(cases(*range(1, MANY)), cases(*range(MANY)))
    assert more == ['+ "lr": 0.0', '+ "seed": 0']


def test_the_order_of_many_cases_counts() -> None:
    found = changes_of(cases(*range(MANY)), cases(*reversed(range(MANY))))
    assert found[:2] == [
        '- "lr": 0.0',
        '+ "lr": 1428.4285714285713',
    ]


def test_limits_may_change() -> None:
    check_unchanged(plan(), with_spec(timeout_s=5.0, max_retries=9, trials=2), "/runs/run", frozenset())
    assert plan().space_digest == with_spec(timeout_s=5.0).space_digest
    assert plan().space_digest != with_spec(trials=2).space_digest
