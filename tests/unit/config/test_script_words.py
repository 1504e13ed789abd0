"""How the parameters of a trial become words of a script's command line."""

import pytest

from sparktrain.config.script_words import FORM, is_script, names, spelled, words_of

ARGPARSE = """
parser.add_argument("--lr", type=float)
parser.add_argument("--batch-size", type=int)
parser.add_argument('--weight_decay', type=float)
parser.add_argument("--nesterov", action="store_true")
parser.add_argument("--amp", action=argparse.BooleanOptionalAction)
"""
TYPER = "import typer\ndef main(batch_size: int = 8, amp: bool = True): ..."


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"lr": 0.1}, ["--lr", "0.1"]),
        ({"batch_size": 32}, ["--batch-size", "32"]),  # as the script spells it
        ({"weight_decay": 1e-4}, ["--weight_decay", "0.0001"]),
        ({"unknown_name": 1}, ["--unknown_name", "1"]),
        ({"nesterov": True}, ["--nesterov"]),
        ({"nesterov": False}, []),  # a switch has no opposite
        ({"amp": False}, ["--no-amp"]),
        ({"lr": None}, []),
        ({"lr": [1, 2]}, ["--lr", "1", "2"]),
        ({"lr": "a b"}, ["--lr", "a b"]),  # one word, never a shell's
        ({"lr": -1.0}, ["--lr", "-1.0"]),
        ({"lr": "-x"}, ["--lr=-x"]),
        ({"lr": {"a": 1}}, ["--lr", '{"a": 1}']),
    ],
)
def test_a_parameter_becomes_an_option(params: dict[str, object], words: list[str]) -> None:
    assert list(words_of(FORM, params, ARGPARSE)) == words


@pytest.mark.parametrize(
    ("form", "value", "words"),
    [
        ("NAME=VALUE", 0.1, ["lr=0.1"]),
        ("--set NAME=VALUE", 0.1, ["--set", "lr=0.1"]),
        ("--NAME=VALUE", "a b", ["--lr=a b"]),
        ("--NAME=VALUE", True, ["--lr=true"]),
        ("NAME=VALUE", [1, 2], ["lr=1,2"]),
        ("'NAME is' VALUE", 1, ["lr is", "1"]),
    ],
)
def test_another_form_has_the_words_of_a_shell(form: str, value: object, words: list[str]) -> None:
    assert list(words_of(form, {"lr": value}, "")) == words


def test_libraries_that_make_options_of_functions_write_dashes() -> None:
    assert spelled("batch_size", TYPER) == "batch-size"
    assert spelled("batch_size", "x = 1") == "batch_size"
    assert list(words_of(FORM, {"amp": False}, TYPER)) == ["--no-amp"]


@pytest.mark.parametrize(
    ("source", "is_named"),
    [
        ("--lr", True),
        ("args.lr", True),
        ("--batch-size", True),
        ("batch_size: int", True),
        ("clr = 1", False),
        ("", False),
    ],
)
def test_a_name_is_a_word_of_the_source(source: str, is_named: bool) -> None:
    assert (names(source, "lr") or names(source, "batch_size")) is is_named


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ("if __name__ == '__main__':\n    main()", True),
        ("import argparse\nmain()", True),
        ("for epoch in range(3):\n    pass", True),
        ("def train(lr):\n    return lr", False),
        ("try:\n    import torch\nexcept ImportError:\n    torch = None\nX = 3\ndef train(): ...", False),
        ("def f(:", False),
        ("if TYPE_CHECKING:\n    Table = dict\ndef train(): ...", False),
        ("import typing as t\nif t.TYPE_CHECKING:\n    import torch", False),
        ("if sys.version_info >= (3, 12):\n    import tomllib\nelse:\n    import tomli", False),
        ("if not TYPE_CHECKING:\n    main()", True),
        ("if TYPE_CHECKING:\n    import torch\nelse:\n    main()", True),
    ],
)
def test_a_script_does_something_when_it_is_run(source: str, answer: bool) -> None:
    assert is_script(source.encode()) is answer
