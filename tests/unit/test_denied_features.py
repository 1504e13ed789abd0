"""Pages that state what sparktrain lacks, and what others do better, deny nothing that it has.

A denial is a bold phrase in the last section of docs/comparison.md. Each has words here by which the feature would show
among the public names: of the package, of options, of commands, of backends and of rules.
"""

import re
from functools import cache
from pathlib import Path

import pytest

import sparktrain
from sparktrain.cli.command_table import COMMANDS
from sparktrain.config.backends import Backend
from sparktrain.config.call_option import options_in
from sparktrain.config.option_catalog import PoolKeywords, RunKeywords, SweepKeywords

DOCS = Path(__file__).parents[2] / "docs"
DENIED = {
    "A wrapper that splits models.": ("model_parallel", "tensor_parallel", "pipeline_parallel"),
    "Sharded optimizers": ("shard_optimizer", "sharded_optimizer", "zero_stage", "fsdp"),
    "Readers with predicates": ("predicate", "row_filter", "transform_spec"),
    "A server with users and quotas.": ("quota", "users", "run_server"),
    "Members that train on while their driver is replaced": ("takeover_hold", "hold_members"),
    "Measurements on many GPUs.": ("scaling_efficiency",),
}
"""The bold phrases, with patterns of names that would contradict each."""
OTHERS = {
    "population-based": "PBT",
    "population based": "PBT",
    "multi-objective": "Objective",
    "several objectives": "Objective",
    "define-by-run": "optuna",
    "hyperband": "Hyperband",
    "model building by `hp`": "keras_tuner",
}
"""Features that a column on what others do better must not claim for them alone once the public name exists."""

OF_CALLS = {"epochs", "resource", "shuffle"}
"""Keywords on that page of `fit`, `search_cv` and `to_tf`."""


@cache
def public_names() -> frozenset[str]:
    keywords = (SweepKeywords, RunKeywords, PoolKeywords)
    names = [
        *sparktrain.__all__,
        *dir(sparktrain.SweepResult),
        *dir(sparktrain.TrainContext),
        *dir(sparktrain.data),
        *(name for kind in keywords for name in options_in(kind)),
        *(backend.value for backend in Backend),
        *COMMANDS,
    ]
    return frozenset(name.lower().replace("-", "_") for name in names)


def denials() -> list[str]:
    section = (DOCS / "comparison.md").read_text().partition("## What sparktrain does not have")[2]
    return re.findall(r"^- (.*)", section, flags=re.MULTILINE)


def test_each_denial_has_words_that_would_contradict_it() -> None:
    phrases = [re.match(r"\*\*(.+?)\*\*", denial) for denial in denials()]
    assert [phrase and phrase[1] for phrase in phrases] == list(DENIED)


@pytest.mark.parametrize("phrase", DENIED)
def test_nothing_is_denied_that_there_is(phrase: str) -> None:
    contradictions = [name for name in public_names() if any(re.search(word, name) for word in DENIED[phrase])]
    assert contradictions == [], f"docs/comparison.md denies it: {phrase}"


@pytest.mark.parametrize("feature", OTHERS)
def test_no_feature_of_ours_is_what_others_do_better(feature: str) -> None:
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| [^|]+ \|$", (DOCS / "comparison.md").read_text(), flags=re.MULTILINE)
    claimed = any(feature in row.lower() for row in rows)
    assert not (claimed and OTHERS[feature].lower() in public_names())


def test_each_public_name_in_the_right_columns_exists() -> None:
    named = set(re.findall(r"`(?:st|sparktrain)\.([A-Za-z_]\w*)", (DOCS / "coming-from.md").read_text()))
    assert named >= {"sweep", "choice", "optuna"}
    assert sorted(name for name in named if not hasattr(sparktrain, name)) == []


def test_each_option_in_the_right_columns_exists() -> None:
    cells = re.findall(r"^\| .* \| (.*) \|$", (DOCS / "coming-from.md").read_text(), flags=re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`([a-z_]+)=", cell)}
    assert named >= {"stopper", "workers_per_trial", "data"}
    assert sorted(named - {name for kind in (SweepKeywords, RunKeywords) for name in options_in(kind)} - OF_CALLS) == []
