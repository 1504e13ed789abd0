"""Parameter files and `--grid` options."""

import doctest
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as some

from sparktrain.config.distribution import choice, loguniform, uniform
from sparktrain.config.param_files import load as module
from sparktrain.config.param_files.load import load_gang, load_params, parse_assignment, parse_assignments, parse_space
from sparktrain.config.param_values import typed
from sparktrain.errors import SpecError
from tests.support.examples import examples

NAMES = some.from_regex(r"[a-z]{1,4}", fullmatch=True).map(lambda name: f"p_{name}")
SCALARS = (
    some.none()
    | some.booleans()
    | some.integers(-(2**63), 2**64 - 1)
    | some.floats(allow_nan=False, allow_infinity=False)
)
TEXT = some.text(some.characters(exclude_categories=("Cs", "Cc")), max_size=6) | some.sampled_from(
    ["😀", "tab\there", "1", "null", "é\n"]
)
VALUES = some.recursive(
    SCALARS | TEXT,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
in_one_folder = examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, "utf-8", newline="")
    return path


@in_one_folder
@given(
    some.dictionaries(NAMES, some.lists(VALUES, min_size=1, max_size=3), min_size=1, max_size=3),
    some.sampled_from([None, 1, "\t"]),
)
def test_json_round_trip(tmp_path: Path, values: dict[str, list[Any]], indent: Any) -> None:
    for ascii_only in (True, False):
        text = json.dumps({"grid": values}, indent=indent, ensure_ascii=ascii_only)
        assert load_params(write(tmp_path, "s.json", text)).values == values


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-12", -12),
        ("+3", 3),
        ("1e-3", 0.001),
        ("1E5", 100000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("true", True),
        ("False", False),
        ("null", None),
        ("", None),
        ("no", "no"),
        ("on", "on"),
        ("None", "None"),
        ("007", "007"),
        ("1_000", "1_000"),
        ("0x10", "0x10"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("adam", "adam"),
        ("1 2", "1 2"),
    ],
)
def test_unquoted_text_is_typed(text: str, value: Any) -> None:
    found = typed(text, "cell")
    assert found == value
    assert type(found) is type(value)


def test_yaml(tmp_path: Path) -> None:
    text = """\
# a sweep
name: mnist-1
metric: val_accuracy
mode: max
trials: 10
seed: 7
trial_timeout: 30m
timeout: 7200
max_retries: 0
dir: hdfs:///exp
max_concurrent_trials: 4
grid:
  lr: [0.1, 1e-3]
  optimizer: [sgd, 'no', no, "1"]
  layers:
  - [64, 32]
  - []
  options: [{momentum: 0.9, nesterov: true}, null, ~]
"""
    file = load_params(write(tmp_path, "sweep.yaml", text))
    assert file.kind == "grid"
    assert file.values == {
        "lr": [0.1, 0.001],
        "optimizer": ["sgd", "no", "no", "1"],
        "layers": [[64, 32], []],
        "options": [{"momentum": 0.9, "nesterov": True}, None, "~"],
    }
    assert file.settings == {
        "name": "mnist-1",
        "metric": "val_accuracy",
        "mode": "max",
        "trials": 10,
        "seed": 7,
        "trial_timeout": 1800.0,
        "timeout": 7200.0,
        "max_retries": 0,
        "dir": "hdfs:///exp",
        "max_concurrent_trials": 4,
    }


def test_yaml_aliases_repeat_values(tmp_path: Path) -> None:
    text = "cases:\n- &first {lr: 0.1, layers: &two [1, 2]}\n- *first\n- {lr: 0.2, layers: *two}\n"
    first = {"lr": 0.1, "layers": [1, 2]}
    assert load_params(write(tmp_path, "s.yml", text)).values == [first, first, {"lr": 0.2, "layers": [1, 2]}]


@pytest.mark.parametrize(("name", "text"), [("s.yaml", "- {a: 1}\n- {}\n"), ("s.json", '[{"a": 1}, {}]')])
def test_a_list_is_cases(tmp_path: Path, name: str, text: str) -> None:
    file = load_params(write(tmp_path, name, text))
    assert (file.kind, file.values, file.settings) == ("cases", [{"a": 1}, {}], {})


def test_csv(tmp_path: Path) -> None:
    text = '\ufefflr, optimizer ,flag\r\n0.1,"a,b",true\r\n\r\n1e-2,,false\r\n3,"two\nlines",x\r\n'
    file = load_params(write(tmp_path, "s.csv", text))
    assert file.kind == "cases"
    assert file.values == [
        {"lr": 0.1, "optimizer": "a,b", "flag": True},
        {"lr": 0.01, "optimizer": None, "flag": False},
        {"lr": 3, "optimizer": "two\nlines", "flag": "x"},
    ]


def test_csv_names_the_line_after_a_cell_of_several(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"s\.csv:4: .*1 cells"):
        load_params(write(tmp_path, "s.csv", 'a,b\n1,"two\nlines"\n3\n'))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("lr=0.1,1e-2", [0.1, 0.01]),
        (" lr = 1 , 2 ", [1, 2]),
        ("opt=sgd", ["sgd"]),
        ('opt="a,b",c', ["a,b", "c"]),
        ("f=true,null", [True, None]),
        ("url=hdfs://x?a=b", ["hdfs://x?a=b"]),
        ("l=[1,[2,3]]", [1, [2, 3]]),
        ('v=["1", {"a": null}]', ["1", {"a": None}]),
    ],
)
def test_assignments(text: str, values: list[Any]) -> None:
    assert parse_assignment(text)[1] == values


def test_assignments_keep_their_order() -> None:
    assert list(parse_assignments(["b=1", "a=2"])) == ["b", "a"]


def refusal(call: Callable[[], object]) -> str | None:
    """The message of the SpecError that `call` raises; None when it raises nothing."""
    try:
        call()
    except SpecError as error:
        return str(error)
    return None


@in_one_folder
@given(some.text(max_size=60), some.sampled_from(["s.yaml", "s.json", "s.csv"]))
def test_any_text_is_read_or_refused_with_the_name_of_the_file(tmp_path: Path, text: str, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    message = refusal(lambda: load_params(path))
    assert message is None or message.startswith(str(path))


@in_one_folder
@given(some.text(max_size=40))
def test_any_option_is_read_or_refused_with_its_text(text: str) -> None:
    message = refusal(lambda: parse_assignment(f"lr={text}", "--zip"))
    assert message is None or message.startswith("--zip ")


def test_the_example_of_the_docstring() -> None:
    assert doctest.testmod(module).failed == 0


def test_the_file_of_a_run(tmp_path: Path) -> None:
    text = "params: {lr: 1e-3, layers: [64, 32], name: no}\nworkers: 4\nevaluator: true\nhang_timeout: 5m\ngpus: 1\n"
    file = load_gang(write(tmp_path, "gang.yaml", text))
    assert file.params == {"lr": 0.001, "layers": [64, 32], "name": "no"}
    assert file.settings == {"workers": 4, "evaluator": True, "hang_timeout": 300.0, "gpus": 1}
    assert load_gang(write(tmp_path, "gang.json", '{"workers": 2}')).params == {}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("g.csv", "lr\n1\n", r"g\.csv: a parameter file ends in \.yaml, \.yml, \.json; rename it"),
        ("g.yaml", "grid: {lr: [1]}\n", r"g\.yaml:1: unknown key 'grid'; allowed: params, workers, mode, "),
        ("g.yaml", "params:\n  lr: 1\nworkers: 0\n", r"g\.yaml:3: workers \(0\) must be at least 1"),
        ("g.yaml", "evaluator: yes\n", r"g\.yaml:1: evaluator is .*, true or false is expected"),
        ("g.yaml", "params: [1]\n", r"g\.yaml:1: params is a list, names with values are expected"),
        ("g.yaml", "workers:\n", r"g\.yaml:1: workers has no value; give one, or remove the line"),
    ],
)
def test_a_wrong_file_of_a_run(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        load_gang(write(tmp_path, name, text))


def test_a_space_in_yaml(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(
        "space:\n  lr: loguniform(1e-4, 1e-1)\n  act: \"choice(['relu', 'gelu'])\"\n  units: [64, 128]\n  epochs: 10\n"
        "  opt:\n    name: sgd\n    wd: uniform(0, 1)\nsampler: tpe\ntrials: 9\n"
    )
    file = load_params(path)
    assert file.kind == "space"
    assert file.values == {
        "lr": loguniform(1e-4, 1e-1),
        "act": choice(["relu", "gelu"]),
        "units": [64, 128],
        "epochs": 10,
        "opt": {"name": "sgd", "wd": uniform(0, 1)},
    }
    assert file.settings == {"sampler": "tpe", "trials": 9}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("space:\n  lr: uniform(1, 0)\n", r"s.yaml:2: space: 'lr': uniform\(1, 0\): the range is inverted"),
        ("space:\n  o:\n    lr: unifrom(0, 1)\n", r"s.yaml:3: .*'lr': there is no distribution 'unifrom'"),
        ("space: {}\n", "s.yaml:1: space is empty"),
        ("space:\n  a b: 1\n", "s.yaml:2: space: 'a b' cannot be the name"),
        ("grid:\n  a: [1]\nsampler: best\n", r"s.yaml:3: sampler \('best'\) must be one of random, tpe"),
    ],
)
def test_a_wrong_space_in_yaml_names_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(SpecError, match=message):
        load_params(path)


def test_spaces_of_the_command_line() -> None:
    given = ["lr=loguniform(1e-4, 1e-1)", "epochs=10", "units=64,128", "layers=[[1], [2]]", "name=a(b"]
    assert parse_space(given) == {
        "lr": loguniform(1e-4, 1e-1),
        "epochs": 10,
        "units": [64, 128],
        "layers": [[1], [2]],
        "name": "a(b",
    }
