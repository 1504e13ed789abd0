"""Numbers in docs/ are those of the code."""

import ast
import re
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from sparktrain.config.quantities import MIB
from sparktrain.config.stoppers import ASHA, PBT, Hyperband, Median, Patience, Threshold, Wilcoxon
from sparktrain.config.sweep_spec import trial_seed
from sparktrain.state.pruning.rule import GRID

ROOT = Path(__file__).parents[2]
SMALL = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
"""Numbers that pages write as words."""
NUMBERS = [
    # page, text with a place for the number, module:constant, what one unit in the text is
    ("architecture", "the agent pauses for {} s, twice as long", "executor/agent:REST_S", 1),
    ("architecture", "has its agents leave, and kills them after {} s", "executor/nursery:LEAVE_S", 1),
    ("architecture", "submits the slot again after {} s", "driver/vacant_slots:PAUSE_S", 1),
    ("architecture", "leave after {} s of refusals", "driver/spark_job:REFUSED_S", 1),
    ("architecture", "at its next record or after {} s", "driver/journal_writer:CHECK_S", 1),
    ("architecture", "in chunks of about {}", "training/data/feed_request:CHUNK_ROWS", 1),
    ("architecture", "of wide rows about {} MiB", "training/data/feed_request:CHUNK_BYTES", MIB),
    (
        "between-graph",
        "error after {} s, with its rank and host |",
        "training/frameworks/tensorflow/strategies/sessions:SERVERS_TIMEOUT_S",
        1,
    ),
    (
        "between-graph",
        "error after {} s, with its rank and host, unless",
        "training/frameworks/tensorflow/strategies/sessions:CHIEF_TIMEOUT_S",
        1,
    ),
    (
        "between-graph",
        "without them, every {} seconds",
        "training/frameworks/tensorflow/strategies/sessions:SAVE_EVERY_S",
        1,
    ),
    (
        "between-graph",
        "takes {} s, unless you pass `stop_grace_period_secs`",
        "training/frameworks/tensorflow/strategies/sessions:STOP_GRACE_S",
        1,
    ),
    ("between-graph", "the new one waits {} s for its port", "training/gang_join:PORT_TIMEOUT_S", 1),
    ("between-graph", "on the member's host within {} s", "state/gangs/timeouts:AGENT_S", 1),
    ("code-and-environment", "the function may have {} MiB", "config/option_catalog:CODE_BYTES", MIB),
    ("code-and-environment", "another limit, up to {} MiB", "usercode/serialize:MOST_CODE_BYTES", MIB),
    ("code-and-environment", "{} MB for each version", "usercode/import_cache:LIMIT_BYTES", 1e6),
    ("code-and-environment", "{} versions stay", "usercode/import_cache:MOST_FILES", 1),
    ("code-and-environment", "sources below {} kB", "usercode/import_cache:SMALL_BYTES", 1e3),
    ("doctor", "no answer within {} s", "executor/checkup:CONNECT_S", 1),
    ("doctor", "{} s warn", "ops/doctor/slots:CLOCK_WARN_S", 1),
    ("doctor", "{} s fail", "ops/doctor/slots:CLOCK_FAIL_S", 1),
    ("doctor", "each tries the {} that follow it", "executor/checkup:PEERS", 1),
    ("doctor", "Java is {} at least", "cluster/launch_warnings:LEAST_JAVA", 1),
    ("glossary", "How long a [heartbeat](#heartbeat) counts: {} seconds", "driver/agent_server:LEASE_S", 1),
    ("glossary", "at most {} rows", "datasets/group_file:MOST_ROWS", 1),
    ("glossary", "rows and {} MiB", "datasets/group_file:MOST_BYTES", MIB),
    ("glossary", "of together {} rows", "training/data/row_order:WINDOW_ROWS", 1),
    ("glossary", "or {} MiB", "training/data/row_order:WINDOW_BYTES", MIB),
    ("inference", "those of its last {} models", "ml/prediction:MOST_HELD", 1),
    ("inference", "keeps the last {} on the CPU", "ml/inference/worker:MOST_MODELS", 1),
    ("inference", "writes variables from {} MiB on", "ml/inference/mapped_weights:LEAST_BYTES", MIB),
    ("keras-fit", "up to {} MiB", "training/data/fit_stages:KEPT_BYTES", MIB),
    ("optuna", "waits for the driver for {} minutes", "training/study_trial:ANSWER_TIMEOUT_S", 60),
    ("repeats", "**{} pairs or more**", "state/pruning/racing:TESTED", 1),
    ("repeats", "gives a probability below {} that", "state/pruning/racing:MOST_CHANCE", 1),
    ("repeats", "**{} to four pairs**", "state/pruning/racing:LEAST", 1),
    ("resume", "shows at most {} lines of source", "usercode/code_changes:MOST_LINES", 1),
    ("resume", "within {} s: it ends with `DeposedError`", "driver/journal_writer:CHECK_S", 1),
    ("resume", "expires, after {} s", "driver/agent_server:LEASE_S", 1),
    ("scaling", "in groups of up to {}", "driver/journal_writer:MOST_RECORDS", 1),
    ("scaling", "at most {} s, the lease", "driver/agent_server:LEASE_S", 1),
    ("scaling", "{} of one address", "protocol/gate:STRANGERS_OF_ADDRESS", 1),
    ("scaling", "and {} in all", "protocol/gate:STRANGERS", 1),
    ("scaling", "up to {} of an address", "protocol/gate:WAITING_OF_ADDRESS", 1),
    ("search-reference", "is resampled up to {} times", "search/optuna_sampler:MOST_ASKS", 1),
    ("search-reference", "drawn at random up to {} times", "search/sampled_space:MAX_REFUSED", 1),
    ("search-reference", "for {} random cases", "search/sampled_space:_EXAMPLES", 1),
    ("search", "expensive trials; at most {}", "search/named_samplers:MOST_GP_TRIALS", 1),
    ("search", "from {} to", "search/named_samplers:LEAST_POPULATION", 1),
    ("search", "from 8 to {}", "search/named_samplers:MOST_POPULATION", 1),
    ("search-reference", "which needs {} results that are not pruned", "search/cma_source:LEAST_KNOWN", 1),
    ("search-reference", "takes more than half an hour ends the sweep", "driver/sampler_thread:CALL_TIMEOUT_S", 1800),
    ("spaces", "A grid of more than {} combinations", "search/grid:MAX_TRIALS", 1),
    ("stopping", "steps that are shorter than {} ms", "training/judgement:LEAST_S", 1e-3),
    ("stopping", "at most a quarter of the time since the report before", "training/judgement:SHARE", 0.25),
    ("stopping", "or a second", "training/judgement:MOST_S", 1),
    ("stopping", "ended {} s later, by SIGTERM", "state/run_machine:TIMEOUT_GRACE_S", 1),
    ("stopping", "runs with {} seeds (`--seeds`)", "ops/simulation/comparison:SEEDS", 1),
    ("streams", "a warning after {} s names", "driver/feeds/stream_jobs:FIRST_BATCH_S", 1),
    ("streams", "or cut off, after {} s", "protocol/feed_messages:FEED_LEASE_S", 1),
    ("streams", "Its queue takes {} batches", "training/data/stream/feed_queue:MOST_BATCHES", 1),
    ("streams", "batches or {} MiB for each stream", "training/data/stream/feed_queue:MOST_BYTES", MIB),
    ("streams", "{} partitions feed it at a time", "training/data/stream/feed_queue:MOST_FEEDING", 1),
    ("streams", "they last for {} days", "protocol/certificates:VALID_DAYS", 1),
    ("tracking", "Up to {} reports wait", "driver/tracking/delivery:MOST_REPORTS", 1),
    ("tracking", "The call waits {} s at most until", "driver/tracking/callback_feed:FLUSH_S", 1),
    ("tracking", "for more than a second", "driver/tracking/callback_feed:STUCK_S", 1),
    ("tracking", "for {} s at most; MLflow drops", "driver/tracking/mlflow_tracker:LAST_S", 1),
    ("tracking", "({} minutes by default)", "config/tracking_options:DEFAULT_AFTER_S", 60),
    ("tracking", "After {} s it is killed", "driver/tracking/notice:COMMAND_S", 1),
    ("tracking", "{} s for an attempt", "driver/tracking/notice:REQUEST_S", 1),
    ("training-function", "a flat dict of at most {} numbers", "training/metrics:MAX_METRICS", 1),
    ("training-function", "or {} times its usual step", "state/deadlines:USUAL_STEPS", 1),
    ("training-function", "and at least {}, all fail", "driver/run_request:FIRST", 1),
    ("training-function", "and end {} s later in any case", "state/run_machine:TIMEOUT_GRACE_S", 1),
    ("yarn", "loses its gang in this way more than {} times", "state/restart:EXCUSED_LIMIT", 1),
    ("yarn", "Spark has {} s to explain why", "driver/coordinator:LOSS_REASON_TIMEOUT_S", 1),
    ("stores", "retries for {} s (`store_timeout=`)", "config/store_address:STORE_TIMEOUT_S", 1),
    ("stores", "sent in parts of {} MiB", "store/objects/bucket:PART_BYTES", MIB),
    ("stores", "a request to an object store retries for {} s", "store/objects/object_store:PROBE_S", 1),
    ("stores", "once its client is open, which may take {} s", "store/objects/object_store:OPEN_S", 1),
    ("stores", "No request waits longer than {} s", "store/hadoop/hadoop_calls:CALL_S", 1),
    ("stores", "appended to every {} s or MiB", "store/hadoop/hdfs_stream:FLUSH_S", 1),
    ("stores", "a write after its first {} MiB", "store/hadoop/transfers:RESENT_BYTES", MIB),
    ("stores", "{} processes race for each", "testing/store_contract:CONTENDERS", 1),
    ("command-line", "looks at it each {} s", "cli/top_command:EVERY_S", 1),
    ("command-line", "at most every {} seconds", "display/live:STATUS_INTERVAL_S", 1),
    ("command-line", "a line each {} minutes", "display/live:QUIET_INTERVAL_S", 60),
    ("command-line", "fewer than {} columns", "display/top_screen:_WIDE", 1),
    ("gangs", "more than {} % fewer steps", "display/gang_view:LAG", 0.01),
    ("gangs-reference", "or {} times its usual step", "state/deadlines:USUAL_STEPS", 1),
    ("gangs-reference", "does not answer for {} s", "driver/agent_server:LEASE_S", 1),
    ("gangs-reference", "do not return within {} s", "state/run_machine:TIMEOUT_GRACE_S", 1),
    ("gangs", "lost agents waits {} s for others", "state/gangs/timeouts:REPLACEMENT_S", 1),
    ("gangs-reference", "at the earliest {} s after the gang has started", "state/gangs/timeouts:COOLDOWN_S", 1),
    ("gangs-reference", "up to {} seconds each time", "training/checkpoint/saver:SAVE_TIMEOUT_S", 1),
    ("data-reference", "of {} rows or 256 MiB", "training/data/row_order:WINDOW_ROWS", 1),
    ("data-reference", "of 262,144 rows or {} MiB", "training/data/row_order:WINDOW_BYTES", MIB),
    ("data-reference", "refused above {} entries", "datasets/values:_WIDEST_SPARSE", 1),
    ("data-reference", "Its unfinished file is removed after an hour", "datasets/host_cache:_ABANDONED_S", 3600),
    ("sessions", "After {} short lives in a row", "driver/engines/local_batch:MOST_SHORT_LIVES", 1),
    ("sessions", "of less than {} s each", "driver/engines/local_batch:SHORT_LIFE_S", 1),
    ("sessions", "ends its trial within {} s", "driver/agent_server:LEASE_S", 1),
    ("sessions", "the driver gives up after {} s", "driver/pool:CONNECT_S", 1),
    ("sessions", "right versions joins within {} s", "driver/agent_server:COMPANY_S", 1),
    ("sessions", "Code of the newest {} calls stays", "executor/code:MOST_CODES", 1),
    ("sessions", "no trial for {} s, then for 10 s, 20 s", "state/health:FIRST_BACK_OFF_S", 1),
    ("sessions", "After {} different trials in a row", "state/health:EXCLUDED_AFTER", 1),
    ("run-directory", "at most about {} MiB, which", "cluster/dataframes/frame_writer:FILE_BYTES", MIB),
    ("run-directory", "at most {} rows and 16 MiB", "datasets/group_file:MOST_ROWS", 1),
    ("run-directory", "65,536 rows and {} MiB", "datasets/group_file:MOST_BYTES", MIB),
    ("run-directory", "{} parts become one, and", "rundir/metric_log:FAN_IN", 1),
    ("run-directory", "until a part has {} MiB", "rundir/metric_log:FULL_BYTES", MIB),
    ("run-directory", "in the driver: the first {} MiB in memory", "driver/metric_recorder:MEMORY_BYTES", MIB),
    ("run-directory", "up to {} GiB after them", "driver/metric_recorder:FILE_BYTES", 2**30),
    ("run-directory", "has {} times as many records", "driver/journal_writer:GROWTH", 1),
    ("run-directory", "and {} more at least", "driver/journal_writer:COMPACT_AFTER", 1),
    ("run-directory", "After {} s in which nothing is written", "driver/journal_writer:CHECK_S", 1),
    ("results-json", "(the first {} characters)", "training/extra_values:MAX_TEXT", 1),
    ("results-json", "objects of at most {} items", "training/extra_values:MAX_ITEMS", 1),
    ("page", "it is ended {} s later", "state/run_machine:TIMEOUT_GRACE_S", 1),
    ("page", "after a grace of {} s", "state/run_machine:TIMEOUT_GRACE_S", 1),
    ("page", "a connection has {} s to send its request", "views/webserve/web_server:HEAD_S", 1),
    ("page", "counted apart ({} answers at a time)", "views/webserve/serving:MOST_ANSWERS", 1),
    ("report", "above {} trials, the best 50", "views/report/views/curves_view:MOST_LINES", 1),
    ("report", "the best {} and bands", "views/report/views/curves_view:BEST_LINES", 1),
    ("tensorboard", "Above {} trials only", "views/board/board_feed:MOST_TRIALS", 1),
    ("tensorboard", "only the best {} are shown", "views/board/board_feed:BEST_TRIALS", 1),
    ("tensorboard", "in their names) each {} s", "executor/live_events:LOOK_S", 1),
    ("tensorboard", "of {} files of a member", "executor/live_events:AT_ONCE", 1),
    ("notebooks", "repeated every {} s", "display/live:STATUS_INTERVAL_S", 1),
    ("notebooks", "The HTML is at most {} KB", "views/notebook/cards:LARGEST", 1000),
    ("notebooks", "that run within {} s, writes the results", "state/gangs/timeouts:KILL_GRACE_S", 1),
    ("installation", "Spark needs Java {} or later", "cluster/launch_warnings:LEAST_JAVA", 1),
    (
        "parameter-server",
        "workers wait at most {} s for it",
        "training/frameworks/tensorflow/parameter_server/ps_model:ANSWER_S",
        1,
    ),
    ("parameter-server", "idle within {} s", "state/gangs/timeouts:REPLACEMENT_S", 1),
    ("security", "They last for {} days", "protocol/certificates:VALID_DAYS", 1),
    ("security", "the port takes {} at a time", "protocol/gate:STRANGERS", 1),
    ("security", "and {} from one address", "protocol/gate:STRANGERS_OF_ADDRESS", 1),
    ("security", "up to {} of an address", "protocol/gate:WAITING_OF_ADDRESS", 1),
    ("security", "has sent nothing for {} s", "protocol/gate:SILENCE_S", 1),
    ("security", "not authenticated after {} s", "protocol/gate:PRECEDENCE_S", 1),
    ("security", "leave {} descriptors", "protocol/gate:RESERVE", 1),
    ("security", "to the hard one, or to {}", "protocol/gate:DESCRIPTORS", 1),
    (
        "security",
        "{} connections that have not",
        "training/frameworks/tensorflow/parameter_server/shard_server:STRANGERS",
        1,
    ),
    (
        "security",
        "and {} of one address",
        "training/frameworks/tensorflow/parameter_server/shard_server:STRANGERS_OF_ADDRESS",
        1,
    ),
    ("security", "the head of a request, {} at a time", "views/webserve/web_server:STRANGERS", 1),
    ("security", "at a time and {} of one address", "views/webserve/web_server:STRANGERS_OF_ADDRESS", 1),
    ("security", "for {} s at most.", "views/webserve/web_server:HEAD_S", 1),
    ("security", "a message may have {} KiB", "state/message:SMALL_BYTES", 2**10),
    ("security", "or one report, may have {} MiB", "state/message:LARGE_BYTES", MIB),
    ("security", "1 MiB and {} metrics", "training/metrics:MAX_METRICS", 1),
    ("environments", "after {} tasks have failed for it", "driver/spark_job:MISSING_FAILURES", 1),
]
RULES = [ASHA, Hyperband, Median, Patience, Threshold, Wilcoxon]


@cache
def text_of(page: str) -> str:
    """A page with single spaces."""
    return " ".join((ROOT / "docs" / f"{page}.md").read_text().split())


@cache
def constants(module: str) -> dict[str, Any]:
    """The numbers that a module assigns at its top, read without an import: that of some takes TensorFlow."""
    values: dict[str, Any] = {"MIB": MIB}
    for node in ast.parse((ROOT / "sparktrain" / f"{module}.py").read_text()).body:
        match node:
            case ast.Assign(targets=[target], value=ast.Constant() | ast.BinOp() | ast.Tuple()):
                try:
                    value = eval(compile(ast.Expression(node.value), module, "eval"), {}, values)
                except NameError:
                    continue
                names = target.elts if isinstance(target, ast.Tuple) else [target]
                parts = value if isinstance(target, ast.Tuple) else [value]
                values |= {ast.unparse(name): part for name, part in zip(names, parts, strict=True)}
    return values


def written(number: float) -> set[str]:
    """How a page may write a number."""
    number = round(number, 9)
    if number != int(number):
        return {f"{number:g}"}
    whole = int(number)
    return {str(whole), f"{whole:,}"} | ({SMALL[whole], SMALL[whole].capitalize()} if whole < len(SMALL) else set())


@pytest.mark.parametrize(("page", "text", "name", "unit"), NUMBERS, ids=lambda value: str(value)[:60])
def test_a_number_is_that_of_the_code(page: str, text: str, name: str, unit: float) -> None:
    module, _, constant = name.partition(":")
    number = constants(module)[constant] / unit
    if "{}" not in text:
        assert number == 1
    assert any(text.format(way) in text_of(page) for way in written(number)), f"{page}.md: {text} is {number:g}"


def test_one_lost_zygote_more_than_are_allowed_makes_an_agent_pause() -> None:
    allowed = constants("executor/warm_zygote")["RESTARTS"]
    assert f"After the {allowed + 1}st loss" in text_of("architecture")


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_defaults_of_a_rule_are_those_of_the_page(rule: type) -> None:
    signature = re.search(rf"\| `st\.{rule.__name__}\(([^)]*)\)` \|", text_of("stopping"))
    assert signature is not None
    shown = dict(part.split("=") for part in signature[1].split(", "))
    made = rule(upper=1) if rule is Threshold else rule()
    wrong = {name: value for name, value in shown.items() if getattr(made, name) != ast.literal_eval(value)}
    assert set(wrong) <= {"most", "upper"}, "the page shows values for these that are no defaults"


def test_the_defaults_of_population_based_training_are_those_of_the_page() -> None:
    rule = PBT()
    factors = ", ".join(f"{factor:g}" for factor in rule.factors)
    assert rule.quantile == 1 / 5
    for text in ("`quantile` (a fifth)", f"`resample` ({rule.resample:g})", f"`factors` ({factors})"):
        assert text in text_of("stopping")


def test_rules_make_as_many_decisions_as_the_page_states() -> None:
    assert "a million steps make 1,100 decisions" in text_of("stopping")
    decisions = sum(point <= 10**6 for point in GRID)
    assert round(decisions, -2) == 1100


def test_the_seed_of_a_trial_follows_the_rule_of_the_page() -> None:
    assert "the first four bytes (big-endian) of SHA-256 of `sparktrain:<seed>:<trial>`, without the lowest bit" in (
        text_of("spaces")
    )
    digest = sha256(b"sparktrain:7:3").digest()
    assert trial_seed(7, 3) == int.from_bytes(digest[:4], "big") >> 1
