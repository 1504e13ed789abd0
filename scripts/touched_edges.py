"""What no import shows of the tests that a change reaches: see `scripts.touched`. Patterns are those of fnmatch.

Where `make test` fails and `make test-touched` did not select the test, add an edge.
"""

from collections.abc import Iterable


def _package(*patterns: str) -> tuple[str, ...]:
    return tuple(f"sparktrain/{pattern}" for pattern in patterns)


def _tests(names: str) -> tuple[str, ...]:
    """Words like `spark/data*` as patterns of files: `tests/spark/test_data*.py`."""
    return tuple(f"tests/{ring}/test_{name}.py" for ring, _, name in (word.partition("/") for word in names.split()))


WINGS = _package("views/*", "ops/*", "tensorflowonspark/*", "sklearn/*", "ml/*", "optuna.py", "torch/*", "testing/*")
"""What the core does not import: a change there does not run the tests of the core."""
TOOLS = _package(
    "base/*", "errors.py", "api.py", "*/__init__.py", "state/outcome.py", "config/gang_spec.py", "config/backends.py",
    "driver/engines/local_engine.py", "protocol/messages.py", "protocol/pipe_messages.py",
)  # fmt: skip
"""What tests of outer rings import to start runs or to read their results, and are not about."""
ALL_TESTS = ("pyproject.toml", "constraints.txt", "Makefile", "tests/conftest.py", "tests/conf.py")
"""What each test depends on."""
READERS: tuple[tuple[Iterable[str], Iterable[str]], ...] = (
    (("sparktrain/*.py", "tests/*.py"), ("tests/architecture/*", "tests/unit/test_house.py")),
    (
        ("sparktrain/*.py", "docs/*", "*.md", "mkdocs.yml", "examples/*", "benchmarks/*", "findings/*", "scripts/*"),
        ("tests/unit/test_*.py",),
    ),
    (("docs/*", "README.md"), _tests("process/site")),
    (("README.md",), _tests("examples/readme")),
)
"""Files that tests read as texts, and these tests."""
_KEPT_MEMBERS = "faults/healing* faults/loops faults/ring_takeover faults/more_losses faults/same_bits"
EDGES: tuple[tuple[Iterable[str], Iterable[str]], ...] = (
    # Wings.
    (
        _package("views/*"),
        _tests("process/board process/*_page process/notebook_runs process/imports spark/notebook spark/reports"),
    ),
    (_package("ml/*"), _tests("spark/ml spark/predict spark/tfestimator spark/tfmodel hadoop/ml_stages")),
    (
        _package("tensorflowonspark/*"),
        _tests(
            "spark/tf* spark/dfutil process/tensorflowonspark_modules training/tfnode training/old* examples/clusters"
        ),
    ),
    (_package("ops/*"), _tests("spark/doctor hadoop/doctor")),
    (_package("sklearn/*"), _tests("process/sklearn_search spark/sklearn examples/s*_page*")),
    (_package("optuna.py", "search/optuna*", "search/study*"), _tests("process/optuna process/study_export")),
    (_package("testing/*"), _tests("process/check process/local_context training/lone_member")),
    # How a gang loses and gains members.
    (_package("state/losses/adoption.py"), _tests("faults/driver_death process/cluster_coordinator process/takeover")),
    (_package("state/losses/drain*", "cluster/announced*", "driver/drain*"), _tests("faults/draining faults/notices")),
    (
        _package("state/losses/handover*", "state/losses/seat_changes.py", "state/seats/*"),
        _tests("faults/standbys faults/moving_members faults/loops"),
    ),
    (
        _package("state/losses/seat_changes.py", "state/seats/*"),
        _tests("faults/smaller_rings faults/loops faults/draining"),
    ),
    (
        _package("state/losses/*", "state/gangs/*", "state/restart*", "state/recovery.py", "state/run_machine.py"),
        _tests("faults/gangs faults/training faults/healing_fits"),
    ),
    (
        _package(
            "training/collectives/*healing.py",
            "training/collectives/continuity.py",
            "*/healing/*",
            "training/checkpoint/memory*",
            "training/elastic/*",
        ),
        _tests(_KEPT_MEMBERS),
    ),
    (
        _package("training/collectives/*"),
        _tests("training/rings training/broken_rings training/local_steps faults/healing_fits"),
    ),
    # What trains.
    (_package("torch/*"), _tests("examples/torch_page")),
    (_package("training/context.py", "training/gang_join.py"), _tests("training/lone_member training/out_of_step")),
    (
        _package(
            "driver/backend_choice.py", "usercode/preload*", "training/frameworks/keras/*preload*", "*/keras_guard.py"
        ),
        _tests("process/keras_backends training/programs_backends"),
    ),
    (
        _package("*/collectives/*", "*/jax_ring.py", "*/torch_ring.py"),
        _tests("training/broken_rings training/slow_members"),
    ),
    (_package("*/healing/*", "training/data/row_cursor.py"), _tests("faults/smaller_rings")),
    (_package("training/elastic/*loop*"), _tests("faults/loops process/keras_jax_gangs")),
    (
        _package("training/frameworks/tensorflow/parameter_server/*"),
        _tests("training/ps* process/parameter_server process/shard_server"),
    ),
    (
        _package("training/frameworks/tensorflow/strategies/*"),
        _tests("training/strategy training/own_strategies training/member_shares"),
    ),
    (
        _package("training/frameworks/keras/*"),
        _tests("training/callbacks training/programs_gang training/fit_call training/resume"),
    ),
    (_package("*/horovod_*"), _tests("training/horovod* process/horovod_script")),
    (_package("training/frameworks/jax/*"), _tests("process/eager_gangs process/keras_jax_gangs")),
    (
        _package("training/frameworks/xgboost/*", "training/frameworks/lightgbm/*"),
        _tests("process/boosting training/boosting"),
    ),
    (
        _package("training/checkpoint/*", "rundir/checkpoint*"),
        _tests("training/checkpoint training/resume faults/gangs"),
    ),
    (_package("training/data/*"), _tests("training/feed* training/dataset_feed process/local_data process/data")),
    (
        _package("driver/feeds/*", "training/data/stream/*", "protocol/feed*"),
        _tests("process/streams spark/streams spark/stream_faults"),
    ),
    # Where it runs.
    (_package("store/hadoop/*"), _tests("hadoop/store* hadoop/data_files hadoop/checkpoints hadoop/runs")),
    (_package("cluster/yarn*", "driver/submitted_jobs/*"), _tests("hadoop/yarn* hadoop/submit hadoop/pack")),
    (_package("cluster/*tokens.py", "cluster/token*", "cluster/kerberos*"), _tests("hadoop/kerberos")),
    (
        _package("cluster/dataframes/*", "driver/data/*", "datasets/*"),
        _tests("spark/data* spark/column_names process/data process/host_cache"),
    ),
    (
        _package("cluster/*", "driver/spark_job.py", "driver/engines/spark*"),
        _tests("spark/sweep spark/run spark/engine spark/connect"),
    ),
    (
        _package("driver/clustered/*"),
        _tests(
            "process/cluster_coordinator spark/far_client spark/left_connect spark/submit hadoop/closed* hadoop/yarn_s*"
        ),
    ),
    (
        _package("driver/engines/*", "executor/nursery*"),
        _tests("process/local_engine process/local_runs spark/engine*"),
    ),
    (
        _package("executor/*", "training/zygote.py"),
        _tests("process/agent process/zygote process/orphans faults/orphans faults/zombies"),
    ),
    (
        _package("usercode/*"),
        _tests("process/packed_code process/fingerprint process/script* process/import_cache spark/code"),
    ),
    (_package("executor/exit_causes.py"), _tests("process/failed_trials")),
    (_package("protocol/settings/*"), _tests("process/script_settings process/imports process/driver_forks")),
    (_package("driver/slots/*"), _tests("process/several_calls spark/data_beside_calls")),
    # What a run tries, and what people see of it.
    (
        _package("search/*", "state/pruning/*"),
        _tests("process/sampled_sweeps process/sampler* process/population process/stopping"),
    ),
    (
        _package("driver/continuation/*", "driver/prepare/*"),
        _tests("process/added_trials process/refit process/resumed_calls process/warm_start"),
    ),
    (_package("driver/tracking/*"), _tests("process/mlflow_tracker process/callbacks")),
    (
        _package("cli/*"),
        _tests("process/commands process/printed_commands process/dry_run process/failed_trials spark/command_line"),
    ),
    (_package("runs/*", "display/*", "results/*"), _tests("process/run_directory process/commands process/top")),
)
"""What outer tests are about, and do not import."""
