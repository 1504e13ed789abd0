"""docs/extending.md names files, names and tests that exist, and what is written by its steps works.

A recipe follows the steps of a section as far as one process can: the new part is registered where the page names it.
"""

import ast
import dataclasses
import json
import multiprocessing.dummy
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, get_args
from uuid import uuid4

import msgspec
import pytest
import typer
from msgspec import Struct
from typer.testing import CliRunner

import sparktrain
from sparktrain.base.ids import Generation, Member, Rank, RunId, TrialId
from sparktrain.cli import option_tables
from sparktrain.cli.training_flags import Target, settings_of, takes
from sparktrain.config import backends, sampler_names, stoppers
from sparktrain.config.backends import AUTO, Backend
from sparktrain.config.call_option import documented_by, option, options_in, settled
from sparktrain.config.distribution import uniform
from sparktrain.config.gang_options import MemberKeywords
from sparktrain.config.gang_spec import GangSpec, Role
from sparktrain.config.option_catalog import BackendName, LaunchKeywords, RunKeywords
from sparktrain.config.option_rules import WAIT, integer
from sparktrain.config.panels import PANELS, TRIALS
from sparktrain.config.param_files import load
from sparktrain.config.stoppers import AnyStopRule, StopRule, encoded, rules_of
from sparktrain.config.store_address import StoreAddress
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.driver import options as driver_options
from sparktrain.errors import ProtocolError, SpecError
from sparktrain.protocol import codec, messages, pipe_messages
from sparktrain.protocol.member_call import MemberCall
from sparktrain.runs import plan
from sparktrain.runs.plan import spec_fields
from sparktrain.search import named_samplers
from sparktrain.search.named_samplers import SamplerChoice
from sparktrain.search.optuna_sampler import Goal
from sparktrain.search.sampled_space import space
from sparktrain.search.sampler import Observation, PastSuggestion, Sampler, Suggestion
from sparktrain.search.space import grid
from sparktrain.state import agent_messages
from sparktrain.state.message import SMALL_BYTES, Small
from sparktrain.state.outcome import Report
from sparktrain.state.pruning import stopper
from sparktrain.state.pruning.learning_curves import _CurveRule
from sparktrain.state.pruning.rule import Aim
from sparktrain.state.pruning.stopper import Stopper
from sparktrain.state.records import RungReached
from sparktrain.state.topology import Formation, MemberAddress
from sparktrain.store import url
from sparktrain.store.base import Store
from sparktrain.store.objects.bucket import Bucket, ObjectInfo, Page, RequestErrorKind, RequestFailure, Upload
from sparktrain.store.objects.object_store import ObjectStore
from sparktrain.store.url import open_store
from sparktrain.testing.sampler_contract import SamplerContract
from sparktrain.testing.store_contract import StoreContract
from sparktrain.training.collectives import backend
from sparktrain.training.collectives.ring import LocalRing, Ring
from sparktrain.views.page import page_feed
from sparktrain.views.page.page_feed import PageFeed
from sparktrain.views.report.encoding import Live
from sparktrain.views.report.html import report_html
from sparktrain.views.report.reading import read_document
from sparktrain.views.report.views import report_document
from sparktrain.views.report.views.report_document import Views, views_of
from sparktrain.views.report.views.run_inputs import RunInputs
from sparktrain.views.report.views.trial_rows import TrialRow
from tests.unit.driver.stored import HandClock, typical
from tests.unit.runs.test_plan import with_spec

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "extending.md").read_text("utf-8")
SECTIONS = [
    "A store", "A backend of gangs", "A stop rule", "A sampler", "A view of the report", "A message", "An option",
]  # fmt: skip
PLACEHOLDER = "NAME"
TESTS = ("tests/", "sparktrain/testing/")
SPAN = re.compile(r"`([^`]+)`")


def sections() -> dict[str, list[str]]:
    """The steps of each section, by its heading."""
    parts = re.split(r"^## (.+)$", PAGE, flags=re.MULTILINE)[1:]
    return {
        heading: re.findall(r"^\d+\. .+\n(?:   .+\n)*", text, re.MULTILINE)
        for heading, text in zip(parts[::2], parts[1::2], strict=True)
    }


STEPS = [(heading, step) for heading, steps in sections().items() for step in steps]
each_step = pytest.mark.parametrize(("heading", "step"), STEPS, ids=lambda text: text[:25].strip())


def is_path(span: str) -> bool:
    """Whether a span of code is the path of a file from the root."""
    return re.fullmatch(r"[\w./-]+", span) is not None and ("/" in span or (ROOT / span).is_file())


def paths_of(text: str) -> list[str]:
    return [span for span in SPAN.findall(text) if is_path(span)]


@cache
def words_of(path: str) -> frozenset[str]:
    """The words of a file."""
    return frozenset(re.findall(r"\w+", (ROOT / path).read_text("utf-8")))


def cases_of(module: str) -> set[str]:
    """The classes that the cases of a module name, as it names them."""
    tree = ast.parse((ROOT / "sparktrain" / f"{module}.py").read_text("utf-8"))
    return {ast.unparse(node.cls) for node in ast.walk(tree) if isinstance(node, ast.MatchClass)}


# ---- the page


def test_each_section_is_a_numbered_list() -> None:
    assert list(sections()) == SECTIONS
    for heading, steps in sections().items():
        assert [int(step.partition(".")[0]) for step in steps] == list(range(1, len(steps) + 1)), heading
        assert len(steps) >= 6, heading


@each_step
def test_a_step_names_files_and_the_test_that_checks_it(heading: str, step: str) -> None:
    work, mark, check = step.partition("Test: ")
    assert mark, step
    assert paths_of(work), step
    assert any(path.startswith(TESTS) for path in paths_of(check)), step


def test_each_file_exists() -> None:
    paths = paths_of(PAGE)
    assert len(paths) > 100
    known = [path for path in paths if PLACEHOLDER not in path]
    assert [path for path in known if not (ROOT / path).is_file()] == []
    assert [path for path in paths if not (ROOT / path).parent.is_dir()] == []


@each_step
def test_each_name_is_in_a_file_of_its_step(heading: str, step: str) -> None:
    files = [path for path in paths_of(step) if PLACEHOLDER not in path]
    words = frozenset[str]().union(*map(words_of, files))
    names = [span for span in SPAN.findall(step) if re.fullmatch(r"[A-Za-z_][\w.]*", span) and not is_path(span)]
    assert [name for name in names if name.rpartition(".")[2] not in words and name != PLACEHOLDER] == []


# ---- a store


class DictBucket(Bucket):
    """Objects in a dict, by step 1."""

    objects: ClassVar[dict[str, tuple[bytes, str]]] = {}
    """Of all stores of the process."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def url(self) -> str:
        return f"dict://{self._name}"

    async def settings(self) -> dict[str, str]:
        return {}

    async def put(self, key: str, data: bytes, writer: str) -> None:
        if self._path(key) in self.objects:
            raise FileExistsError(key)
        self.objects[self._path(key)] = (data, writer)

    async def upload(self, key: str, writer: str) -> Upload:
        return DictUpload(self, key, writer)

    async def head(self, key: str) -> ObjectInfo:
        data, writer = self.objects[self._path(key)]
        return ObjectInfo(len(data), 0.0, writer)

    async def get(self, key: str, start: int, length: int) -> bytes:
        return self.objects[self._path(key)][0][start : start + length]

    async def page(self, prefix: str, token: str | None) -> Page:
        top = self._path("")
        keys = {path.removeprefix(top): len(data) for path, (data, _) in self.objects.items() if path.startswith(top)}
        return Page({key: size for key, size in keys.items() if key.startswith(prefix)}, None)

    async def delete(self, key: str) -> None:
        self.objects.pop(self._path(key), None)

    def explain(self, error: Exception) -> RequestFailure:
        kinds = {FileExistsError: RequestErrorKind.TAKEN, KeyError: RequestErrorKind.MISSING}
        return RequestFailure(kinds.get(type(error), RequestErrorKind.FAILED), str(error))

    def _path(self, key: str) -> str:
        return f"{self._name}/{key}"


class DictUpload(Upload):
    """The parts of a large object."""

    def __init__(self, bucket: DictBucket, key: str, writer: str) -> None:
        self._bucket = bucket
        self._key = key
        self._writer = writer
        self._parts: list[bytes] = []

    async def add(self, part: bytes) -> None:
        self._parts.append(part)

    async def publish(self, last: bytes) -> None:
        await self._bucket.put(self._key, b"".join([*self._parts, last]), self._writer)

    async def abort(self) -> None:
        self._parts.clear()


def open_dict(address: StoreAddress) -> Store:
    """The opener, by step 3."""
    name, _, prefix = address.url.removeprefix("dict://").partition("/")
    return ObjectStore(DictBucket(name), prefix, address.timeout_s)


class TestStoreByTheSteps(StoreContract):
    """The suite, by step 5."""

    rounds = 3
    contest = multiprocessing.dummy

    @pytest.fixture
    def store(self, monkeypatch: pytest.MonkeyPatch) -> Store:
        monkeypatch.setitem(url._OPENERS, "dict", open_dict)
        return open_store(f"dict://{uuid4().hex}/runs")


# ---- a backend of gangs


def test_the_tables_of_backends_have_each_one() -> None:
    assert set(get_args(BackendName)) == {AUTO, *Backend}
    assert set(backends.BACKENDS) == set(Backend)


def test_the_module_of_a_backend_has_a_function_that_joins() -> None:
    for ring in filter(None, (row.ring for row in backends.BACKENDS.values())):
        path = ROOT.joinpath("sparktrain", "training", "frameworks", *ring.split("."))
        tree = ast.parse(path.with_suffix(".py").read_text("utf-8"))
        [join] = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "join"]
        assert [argument.arg for argument in join.args.args] == ["joining"]


def test_a_backend_by_the_steps_gives_its_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    class NewRing(LocalRing):
        def __init__(self, formation: Formation) -> None:
            self.rank = formation.rank
            self.size = formation.size

    module = ModuleType("sparktrain.training.frameworks.new_ring")
    module.join = lambda joining: NewRing(joining.formation)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    row = dataclasses.replace(backends.BACKENDS[Backend.HOROVOD], ring="new_ring")
    monkeypatch.setitem(backends.BACKENDS, Backend.HOROVOD, row)
    place = MemberAddress("host", "10.0.0.1", 4000, Role.CHIEF)
    formation = Formation(Rank(0), (place, msgspec.structs.replace(place, role=Role.WORKER)))
    joining = backend.Joining(formation, exchange=None, release_port=lambda: None, timeout_s=1.0)  # type: ignore[arg-type]
    ring = backend.load(Backend.HOROVOD)(joining)
    assert (type(ring), ring.rank, ring.size) == (NewRing, 0, 2)


def test_a_ring_without_a_collective_cannot_be_made() -> None:
    class Incomplete(Ring):
        def close(self) -> None: ...

    with pytest.raises(TypeError, match=r"allgather.*allreduce.*broadcast"):
        Incomplete()  # type: ignore[abstract]


# ---- a stop rule


class Worsening(StopRule, frozen=True, tag="worsening", kw_only=True):
    """Stops a trial with a metric that is worse than its first one, by step 1."""

    word = "worsening"
    warmup: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        stoppers._check(self, "warmup", stoppers._is_integer(self.warmup, 0), "must be a whole number of steps from 0")


class WorseningRule(_CurveRule):
    """Its decisions, by step 2."""

    def __init__(self, options: Worsening, aim: Aim) -> None:
        super().__init__(str(options), options.steps_from, aim)
        self._options = options
        self._first: dict[TrialId, float] = {}

    def judge(self, trial: TrialId, point: int, value: float | None) -> str:
        if value is None or point <= self._options.warmup:
            return ""
        cost = self.aim.cost(value)
        return f"is {self.aim.worse} its first value" if cost > self._first.get(trial, cost) else ""

    def record(self, trial: TrialId, point: int, value: float | None) -> None:
        super().record(trial, point, value)
        if value is not None:
            self._first.setdefault(trial, self.aim.cost(value))


LOSS = Aim("loss", largest=False)


@pytest.fixture
def worsening(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the rule, by steps 1 and 3."""
    chosen = stopper._rule

    def rule_of(options: Any, aim: Aim) -> Any:
        return WorseningRule(options, aim) if isinstance(options, Worsening) else chosen(options, aim)

    monkeypatch.setitem(stoppers._RULES, "worsening", Worsening)
    monkeypatch.setattr(stopper, "_rule", rule_of)


def reported(rules: Stopper, *losses: float) -> list[Any]:
    return [
        record
        for step, loss in enumerate(losses)
        for record in rules.on_reports(TrialId(0), [Report(step, {"loss": loss})])
    ]


@pytest.mark.usefixtures("worsening")
def test_a_stop_rule_by_the_steps_is_accepted_as_text_object_and_json() -> None:
    [rule] = rules_of("worsening:warmup=2")
    assert str(rule) == "worsening(warmup=2)"
    assert rules_of(rule) == rules_of(encoded([rule])) == (Worsening(warmup=2),)
    assert SweepSpec(name="run", metric="loss", mode="min", stopper="worsening").stopper == (Worsening(),)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"warmup \(-1\) must be a whole number"):
        rules_of("worsening:warmup=-1")


@pytest.mark.usefixtures("worsening")
def test_a_stop_rule_by_the_steps_stops_and_the_next_driver_decides_the_same() -> None:
    records = reported(Stopper([Worsening()], LOSS), 0.5, 0.4, 0.6)  # type: ignore[list-item]
    assert records[-1].reason == "stopped at step 2: loss 0.6 is above its first value (worsening)"
    successor = Stopper([Worsening()], LOSS)  # type: ignore[list-item]
    for record in records[:-1]:
        assert isinstance(record, RungReached)
        successor.fold(record)
    [decision] = successor.on_reports(TrialId(0), [Report(2, {"loss": 0.6})])
    assert decision == records[-1]


def test_each_stop_rule_is_a_case_and_a_public_name() -> None:
    rules = {rule.__name__ for rule in get_args(AnyStopRule)}
    assert rules - cases_of("state/pruning/stopper") == {"Wilcoxon"}, "the last case takes this one alone"
    assert {rule.__name__ for rule in stoppers._RULES.values()} == rules
    assert rules <= set(sparktrain.__all__)


# ---- a sampler


class Counting:
    """A sampler by step 1: it proposes the next number."""

    learns = False
    total = 9

    def __init__(self) -> None:
        self._next = 0

    def suggest(self, count: int) -> Suggestion:
        numbers = range(self._next, min(self.total, self._next + count))
        self._next = numbers.stop
        return Suggestion(tuple({"x": number} for number in numbers), exhausted=self._next >= self.total)

    def observe(self, observation: Observation) -> None: ...

    def restore(self, history: Sequence[PastSuggestion | Observation]) -> None:
        self._next = sum(len(event.cases) for event in history if isinstance(event, PastSuggestion))


class TestSamplerByTheSteps(SamplerContract):
    """The suite, by step 5."""

    def make(self) -> Sampler:
        asked = sampler_names.sampler(Counting())
        return SamplerChoice(requested=asked, trials=9).sampler(grid(x=[1]))


def test_a_sampler_by_the_steps_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_names, "SAMPLERS", (*sampler_names.SAMPLERS, "dice"))
    monkeypatch.setitem(named_samplers._MAKERS, "dice", named_samplers._random)
    choice = SamplerChoice(requested=sampler_names.sampler("dice"), trials=5, goal=Goal("y", True))
    [case] = choice.sampler(space(x=uniform(0, 1))).suggest(1).cases
    assert 0.0 <= case["x"] <= 1.0
    with pytest.raises(SpecError, match="did you mean 'dice'"):
        sampler_names.sampler("dize")


def test_each_name_of_a_sampler_has_a_maker() -> None:
    assert set(sampler_names.SAMPLERS) == {*named_samplers._MAKERS, "grid"}
    assert set(named_samplers._LEARNING) | set(named_samplers._NEEDS) <= set(named_samplers._MAKERS)


# ---- a view of the report


class CountView(Struct, frozen=True):
    """A view by step 1."""

    trials: int


class MoreViews(Views, frozen=True, kw_only=True):
    """The views with one more field, by step 2."""

    count: CountView


def more_views(inputs: RunInputs, rows: tuple[TrialRow, ...]) -> MoreViews:
    views = views_of(inputs, rows)
    fields = {name: getattr(views, name) for name in views.__struct_fields__}
    return MoreViews(**fields, count=CountView(len(rows)))


def test_a_view_by_the_steps_is_in_the_report_and_on_the_live_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_document, "views_of", more_views)
    monkeypatch.setattr(page_feed, "views_of", more_views)
    run = typical(tmp_path / "runs")
    html = report_html(read_document(run.directory, HandClock())).decode()
    assert '"count":{"trials":4}' in html
    served = json.loads(PageFeed(run.place, HandClock()).document(Live((), "")))
    assert served["views"]["count"] == {"trials": 4}


def test_each_view_has_a_section_that_draws_it() -> None:
    source = (ROOT / "sparktrain" / "views" / "report" / "assets" / "sections.js").read_text("utf-8")
    needs = {key for keys in re.findall(r"needs: \[([^\]]*)\]", source) for key in re.findall(r'"(\w+)"', keys)}
    assert needs == {"headline", "trials", *Views.__struct_fields__}


# ---- a message


class MemberSlept(Small, frozen=True, tag=True):
    """A message of an agent about its member, by step 1."""

    member: Member
    seconds: float


MEMBER = Member(RunId("mnist"), TrialId(7), Generation(2), Rank(1))


def test_a_message_by_the_steps_survives_the_codec_in_its_union_alone() -> None:
    data = codec.encode(MemberSlept(MEMBER, 1.5))
    assert codec.decode(data, messages.FromAgent | MemberSlept) == MemberSlept(MEMBER, 1.5)
    assert MemberSlept.most_bytes == SMALL_BYTES
    for union in (messages.FromAgent, messages.ToAgent):
        with pytest.raises(ProtocolError):
            codec.decode(data, union)
    with pytest.raises(ProtocolError):
        codec.decode(data.replace(b"seconds", b"minutes"), messages.FromAgent | MemberSlept)


@pytest.mark.parametrize(
    ("union", "handler"),
    [
        (agent_messages.MemberMessage, "state/run_machine"),
        (messages.ToAgent, "executor/agent"),
        (pipe_messages.FromMember, "executor/member_runner"),
    ],
    ids=["member messages", "to agents", "from members"],
)
def test_each_message_of_a_union_has_its_handler(union: Any, handler: str) -> None:
    handled = {case.rpartition(".")[2] for case in cases_of(handler)}
    assert {kind.__name__ for kind in get_args(union)} - handled == set()


def test_messages_of_the_state_machine_are_names_of_the_protocol() -> None:
    kinds = get_args(agent_messages.StateInput | agent_messages.StateOutput)
    assert {kind.__name__ for kind in kinds} <= set(messages.__all__)


# ---- an option


class MoreKeywords(LaunchKeywords):
    """A copy of the catalog with one more option, by step 1."""

    rest_between: int | None = option(
        "Seconds that a slot rests between two trials.",
        integer(1),
        panel=TRIALS,
        default_text="none",
        also=("cooldown",),
        page="sessions.md",
    )


def test_an_option_by_the_steps_is_a_keyword_of_the_call() -> None:
    @documented_by(MoreKeywords)
    def call(**options: Any) -> MoreKeywords:
        """Train.

        Args:
            **options: the options.
        """
        return settled(MoreKeywords, options, "call")

    help_text = " ".join(str(call.__doc__).split())
    assert "rest_between: Seconds that a slot rests between two trials. Default: none." in help_text
    assert call(rest_between=3).rest_between == 3
    assert call().rest_between is None
    with pytest.raises(SpecError, match=r"^rest_between .*\(rest_between: Seconds that a slot rests"):
        call(rest_between=0)
    with pytest.raises(SpecError, match="did you mean 'rest_between'"):
        call(cooldown=3)


class MoreMemberKeywords(MemberKeywords):
    """A copy of the options of members with one more, by step 4."""

    ring_timeout: float = option("Wait this long for the other members.", WAIT, default=60.0)


class MoreRunKeywords(MoreMemberKeywords, RunKeywords):
    """The options of `run`, with those."""


class MoreCall(MemberCall, frozen=True, kw_only=True):
    """The record of a member, with those."""

    options: MoreMemberKeywords


def test_an_option_by_the_steps_is_in_the_call_of_each_member(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (driver_options, plan):
        monkeypatch.setattr(module, "MemberKeywords", MoreMemberKeywords)
    monkeypatch.setitem(plan.STORED_KEYS, "ring_timeout", "ring_timeout")
    keywords = settled(MoreRunKeywords, {"workers": 2, "ring_timeout": "5s"})
    spec = driver_options.RunOptions(keywords).spec(GangSpec(workers=2), "run")
    resumed = with_spec(**spec_fields(spec)).sweep_spec()
    call = MemberCall(params={}, seed=0, options=resumed.member_options)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(call), type=MoreCall).options.ring_timeout == 5


def test_an_option_by_the_steps_is_a_flag_of_the_command_line() -> None:
    app = typer.Typer()

    @app.command()
    @takes(MoreKeywords)
    def sweep(function: Target, **flags: Any) -> None: ...

    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}).output
    assert "--rest-between" in shown
    assert "Seconds that a slot rests between two trials (default: none)." in shown
    assert options_in(MoreKeywords)["rest_between"].option.panel in PANELS
    assert settings_of(MoreKeywords, {"rest_between": "3"}) == {"rest_between": 3}


def test_an_option_by_the_steps_is_in_a_parameter_file_and_in_the_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "_OF_SWEEP", load._of_file(MoreKeywords))
    monkeypatch.setitem(option_tables.CALLS, "launch", MoreKeywords)
    file = tmp_path / "sweep.yaml"
    file.write_text("grid: {lr: [0.1]}\nrest_between: 3\n")
    assert load.load_params(file).settings == {"rest_between": 3}
    page = option_tables.written("<!-- options: all -->\n<!-- end of options -->")
    assert "| `rest_between` | `int \\| None` | none | Seconds that a slot rests" in page
