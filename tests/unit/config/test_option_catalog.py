"""Every option of every call: what derives from its definition, and how a wrong value is refused everywhere."""

import doctest
import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparktrain as st
from sparktrain import cli
from sparktrain.cli import option_tables
from sparktrain.config import call_option, option_catalog
from sparktrain.config.call_option import Declared, options_in, settled
from sparktrain.config.option_rules import TEXT, changes
from sparktrain.config.param_files.load import load_gang, load_params
from sparktrain.errors import SpecError

ROOT = Path(__file__).parents[3]
PAGES = ("options.md",)


def train(lr: float) -> float:
    return lr


POOL = st.Pool(None)  # type: ignore[arg-type]  # a wrong option is refused before it is asked for anything
CALLS: dict[str, tuple[type, Callable[..., object]]] = {
    "sweep": (option_catalog.SweepKeywords, lambda **options: st.sweep(train, {"lr": [1]}, **options)),
    "launch": (option_catalog.LaunchKeywords, lambda **options: st.launch(None, train, {"lr": [1]}, **options)),
    "run": (option_catalog.RunKeywords, lambda **options: st.run(train, {"lr": 1}, **options)),
    "resume": (option_catalog.ResumeKeywords, lambda **options: st.resume("/nowhere", **options)),
    "extend": (option_catalog.ExtendKeywords, lambda **options: st.extend("/nowhere", **options)),
    "refit": (option_catalog.RefitKeywords, lambda **options: st.refit("/nowhere", **options)),
    "pool": (option_catalog.PoolKeywords, lambda **options: st.pool(**options)),
    "Pool.sweep": (option_catalog.PoolSweepKeywords, lambda **options: POOL.sweep(train, {"lr": [1]}, **options)),
    "Pool.launch": (option_catalog.PoolLaunchKeywords, lambda **options: POOL.launch(train, {"lr": [1]}, **options)),
    "Pool.run": (option_catalog.PoolRunKeywords, lambda **options: POOL.run(train, {"lr": 1}, **options)),
}
FUNCTIONS = {"sweep": st.sweep, "launch": st.launch, "run": st.run, "resume": st.resume, "extend": st.extend,
             "refit": st.refit, "pool": st.pool, "Pool.sweep": st.Pool.sweep, "Pool.launch": st.Pool.launch,
             "Pool.run": st.Pool.run}  # fmt: skip
NEEDED = {"metric": "loss", "workers": 2}


def each_of(calls: dict[str, type]) -> list[tuple[str, str]]:
    return [(call, name) for call, keywords in calls.items() for name in options_in(keywords)]


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(SpecError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(("call", "name"), each_of({call: keywords for call, (keywords, _) in CALLS.items()}))
def test_a_wrong_type_is_refused_with_the_doc_by_every_call(call: str, name: str) -> None:
    keywords, function = CALLS[call]
    needed = {other: NEEDED[other] for other, each in options_in(keywords).items() if each.option.required}
    for wrong in (object(), [object()]):
        message = refused(lambda: function(**{**needed, name: wrong}))  # noqa: B023  # it is called at once
        assert message.startswith(name)
        assert (type(wrong).__name__ if name == "env" else "object") in message  # a value of env may be a secret
        assert message.endswith(f"({name}: {options_in(keywords)[name].option.doc.rstrip('.')})")
        assert "\n" not in message


FLAGS = {
    "sweep": option_catalog.LaunchKeywords,
    "run": option_catalog.RunKeywords,
    "resume": option_catalog.ResumeKeywords,
    "extend": option_catalog.ExtendKeywords,
    "refit": option_catalog.RefitKeywords,
}
WRONG_WORDS = {
    "N": "many", "TIME": "soon", "SIZE": "8 apples", "max|min": "up", "newest|best|none": "old", "K1,K2": "cod",
    "PATH": "", "NAME[=VALUE]": "1x=2", "NAME=PATH": "train",
}  # fmt: skip
WRONG_NAMES = {"name": "a b", "metric": "", "backend": "nccl"}


def flags() -> list[tuple[str, str]]:
    """Options with wrong values: any word is valid as text and as the name of a module."""
    return [
        (call, name)
        for call, name in each_of(FLAGS)
        if options_in(FLAGS[call])[name].flag is not None
        and options_in(FLAGS[call])[name].option.rule.metavar not in ("", TEXT.metavar, "M1,M2")
    ]


@pytest.mark.parametrize(("call", "name"), flags())
def test_a_wrong_word_is_refused_with_the_doc_by_the_command_line(
    call: str, name: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    declared = options_in(FLAGS[call])[name]
    word = WRONG_NAMES.get(name, WRONG_WORDS.get(declared.option.rule.metavar, ""))
    words = {
        "sweep": ["t.py:train", "--grid", "lr=1"],
        "run": ["t.py:train"],
        "resume": [str(tmp_path)],
        "extend": [str(tmp_path)],
        "refit": [str(tmp_path)],
    }[call]
    assert cli.main([call, *words, f"{declared.flag}={word}"]) == 2
    out, err = capfd.readouterr()
    first, _, see = err.partition("\n")
    assert re.match(f"error: {declared.flag}\\b", first)
    assert first.endswith(f"({name}: {declared.option.doc.rstrip('.')})")
    assert see == f"see: sparktrain {call} --help\n"
    assert out == ""


FILES: dict[str, tuple[type, Callable[[Path], Any], dict[str, object]]] = {
    "sweep": (option_catalog.LaunchKeywords, load_params, {"grid": {"lr": [1]}}),
    "run": (option_catalog.RunKeywords, load_gang, {}),
}


@pytest.mark.parametrize(
    ("call", "name"),
    [(call, name) for call, name in each_of({call: each[0] for call, each in FILES.items()})
     if options_in(FILES[call][0])[name].option.in_file],
)  # fmt: skip
def test_a_wrong_type_is_refused_with_line_and_doc_by_a_parameter_file(call: str, name: str, tmp_path: Path) -> None:
    keywords, load, rest = FILES[call]
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps({**rest, name: [{"x": 1}, [1]]}, indent=1))
    message = refused(lambda: load(path))
    assert re.match(rf"\S+wrong\.json:[0-9]+: {name}\b", message)
    assert message.endswith(f"({name}: {options_in(keywords)[name].option.doc.rstrip('.')})")


@pytest.mark.parametrize("call", FUNCTIONS)
def test_help_and_signature_show_every_option(call: str) -> None:
    options = options_in(CALLS[call][0])
    parameters = inspect.signature(FUNCTIONS[call]).parameters
    documented = inspect.getdoc(FUNCTIONS[call])
    assert documented is not None
    assert "**options" not in documented
    for name, each in options.items():
        found = parameters[name]
        assert (found.kind, found.annotation) == (found.KEYWORD_ONLY, each.type)
        assert found.default == (found.empty if each.option.required else each.option.default)
        first = each.option.doc.split()[0]
        assert re.search(rf"^    {name}: {re.escape(first)}", documented, re.MULTILINE), name


@pytest.mark.parametrize(("call", "name"), each_of({call: keywords for call, (keywords, _) in CALLS.items()}))
def test_the_default_of_an_option_keeps_its_rule(call: str, name: str) -> None:
    declared = options_in(CALLS[call][0])[name]
    if not declared.option.required:
        assert declared.checked(declared.option.default) == declared.option.default


def test_a_missing_option_is_named_with_its_doc() -> None:
    assert refused(lambda: settled(option_catalog.SweepKeywords, {}, "sweep")).startswith(
        "sweep lacks metric: pass metric="
    )
    assert refused(lambda: settled(option_catalog.RunKeywords, {"workers": None}, "run")).startswith("workers is None")


def test_another_tools_name_suggests_ours() -> None:
    message = refused(lambda: settled(option_catalog.LaunchKeywords, {"num_samples": 3}, "launch"))
    assert message.startswith("launch has no option 'num_samples'; did you mean 'trials'? its options are mode, ")
    assert "did you mean 'workers'?" in refused(
        lambda: settled(option_catalog.RunKeywords, {"num_executors": 3}, "run")
    )


def test_a_missing_option_and_none_mean_the_default() -> None:
    keywords = settled(option_catalog.LaunchKeywords, {"trials": None, "stopper": None, "other_metrics": None})
    assert keywords == settled(option_catalog.LaunchKeywords, {})
    assert (keywords.trials, keywords.dir, keywords.max_failures) == (None, "sparktrain-runs", "auto")


def test_allow_changed_accepts_a_list_and_text_with_commas() -> None:
    assert changes(["code", "space"]) == changes("code, space") == ("code", "space")
    assert changes(()) == ()
    for wrong in (["cod"], "code;space", [3], ""):
        assert "must name what may change" in refused(lambda: changes(wrong))  # noqa: B023  # it is called at once
    assert "did you mean 'code'" in refused(lambda: changes(["cod"]))


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_of_the_docs_match_the_catalog(page: str) -> None:
    text = (ROOT / "docs" / page).read_text("utf-8")
    assert "<!-- options:" in text
    assert option_tables.written(text) == text, "run python -m sparktrain.cli.option_tables"


def test_the_types_of_arguments_match_the_catalog() -> None:
    source = option_tables.ARGUMENTS.read_text("utf-8")
    assert source == option_tables.arguments_module(), "run python -m sparktrain.cli.option_tables"


def test_every_doc_is_one_sentence_that_ends() -> None:
    for keywords, _ in CALLS.values():
        for declared in options_in(keywords).values():
            assert re.fullmatch(r"[A-Z].*\.", declared.option.doc), declared.name


def test_the_example_of_the_docstring() -> None:
    assert doctest.testmod(call_option).failed == 0


def test_a_flag_is_the_name_with_dashes() -> None:
    declared = options_in(option_catalog.LaunchKeywords)["trial_timeout"]
    assert isinstance(declared, Declared)
    assert declared.flag == "--trial-timeout"
    assert options_in(option_catalog.LaunchKeywords)["progress"].flag is None
