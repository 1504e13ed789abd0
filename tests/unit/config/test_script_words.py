"""How the parameters of a trial become words of a script's command line."""

import argparse

import pytest

from sparktrain.config.script_words import FORM, is_script, names, spelled, taken_for, takes_any, words_of

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
        ({"lr": -1e-5}, ["--lr=-1e-05"]),  # argparse takes it for an option otherwise
        ({"lr": "-x"}, ["--lr=-x"]),
        ({"lr": {"a": 1}}, ["--lr", '{"a": 1}']),
    ],
)
def test_a_parameter_becomes_an_option(params: dict[str, object], words: list[str]) -> None:
    assert list(words_of(FORM, params, ARGPARSE)) == words


@pytest.mark.parametrize(
    ("source", "of_true", "of_false"),
    [
        ('parser.add_argument("--amp", type=bool)', ["--amp=True"], ["--amp="]),
        ('parser.add_argument("--amp", type=str2bool)', ["--amp=True"], ["--amp=False"]),
        ('@click.option("--amp", type=bool)', ["--amp=True"], ["--amp=False"]),
        ('parser.add_argument("--amp", default=False)', ["--amp=True"], ["--amp="]),
        ('parser.add_argument("--amp", help="(slow) or not", action="store_true")', ["--amp"], []),
        ('@click.option("--amp", is_flag=True)', ["--amp"], []),
        ('@click.option("--amp", default=False)', ["--amp=True"], ["--amp=False"]),
        ('amp: bool = typer.Option(False, "--amp")', ["--amp"], []),
        ('@click.option("--amp/--no-amp")', ["--amp"], ["--no-amp"]),
        ('flags.DEFINE_bool("amp", True, "")', ["--amp=True"], ["--amp=False"]),
        ("parser = HfArgumentParser(Options)", ["--amp=True"], ["--amp=False"]),
        ("import fire", ["--amp=True"], ["--amp=False"]),
        ("# fire and forget", ["--amp"], ["--no-amp"]),
    ],
)
def test_a_boolean_is_what_the_parser_of_the_script_takes(source: str, of_true: list[str], of_false: list[str]) -> None:
    assert list(words_of(FORM, {"amp": True}, source)) == of_true
    assert list(words_of(FORM, {"amp": False}, source)) == of_false


def test_an_option_with_a_longer_name_is_another_one() -> None:
    assert spelled("batch_size", '"--batch_size_total", "--batch-size"') == "batch-size"


@pytest.mark.parametrize(
    "keywords",
    ["", ", default=True", ", type=bool", ', action="store_true"', ", action=argparse.BooleanOptionalAction"],
)
def test_argparse_reads_a_boolean_as_it_is(keywords: str) -> None:
    source = f'parser.add_argument("-a", "--amp"{keywords})'
    parser = argparse.ArgumentParser()
    exec(source, {"parser": parser, "argparse": argparse})
    for value in (True, False):
        assert bool(parser.parse_args(list(words_of(FORM, {"amp": value}, source))).amp) is value


@pytest.mark.parametrize(
    ("source", "option"),
    [
        ('ArgumentParser().add_argument("--lr-decay")', "--lr-decay"),
        ('ArgumentParser().add_argument("--lr-decay").add_argument("--lr")', ""),
        ('ArgumentParser(allow_abbrev=False).add_argument("--lr-decay")', ""),
        ('ArgumentParser().add_argument("--lr-decay").add_argument(f"--{name}")', ""),
        ('@click.option("--lr-decay")', ""),
    ],
)
def test_argparse_would_take_the_start_of_an_option_for_it(source: str, option: str) -> None:
    assert taken_for(source, "lr") == option


def test_options_of_classes_may_be_those_of_other_packages() -> None:
    assert takes_any("parser = HfArgumentParser(TrainingArguments)")
    assert takes_any("@hydra.main(config_path='conf')")
    assert not takes_any("parser = ArgumentParser()")


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


def test_a_configuration_has_lists_in_brackets_and_names_with_dots() -> None:
    params = {"model.layers": [64, 32], "model.lr": -0.1}
    assert list(words_of("NAME=VALUE", params, "import hydra")) == ["model.layers=[64,32]", "model.lr=-0.1"]
    assert list(words_of(FORM, {"model.lr": 0.1, "amp": True}, "LightningCLI(Model)")) == [
        "--model.lr", "0.1", "--amp=True",
    ]  # fmt: skip
