"""Bad gangs: numbers of members, backends, and calls of `run`."""

from pathlib import Path

import sparktrain
from sparktrain.cluster.preflight import agents_for, check_executors, check_installed, check_pool, check_standby
from sparktrain.cluster.spark_facts import Facts
from sparktrain.config.backends import Backend
from sparktrain.config.data_sources import StreamSource
from sparktrain.config.gang_spec import GangSpec
from sparktrain.config.param_files.load import load_params, parse_params
from sparktrain.config.sweep_spec import SweepSpec
from sparktrain.driver.data.data_plan import DataPlan
from sparktrain.driver.engines.local_engine import LocalEngine, local
from sparktrain.driver.options import RunOptions, SweepOptions
from sparktrain.driver.prepare.checked_call import check_streams
from sparktrain.errors import FunctionError, ResourceError, UserError
from tests.unit.bad_input.case import Case, spec_case


def train(lr: float, ctx: object = None) -> float:
    return lr


def gang(id: str, *patterns: str, **values: object) -> Case:
    return Case(f"gang-{id}", lambda _: GangSpec(**values), patterns)


def served(id: str, *patterns: str, **values: object) -> Case:
    """A gang with parameter servers in mode `sync`."""
    given = {"workers": 2, "ps": 1, "backend": Backend.PARAMETER_SERVER, "ps_mode": "sync", **values}
    return gang(f"served-{id}", *patterns, **given)


def run(id: str, *patterns: str, error: type[UserError] | None = None, **values: object) -> Case:
    """A whole call of `run`, which is refused before it looks for a Spark session."""
    given = {"workers": 2, "backend": "none", "params": {"lr": 0.1}, **values}
    return Case(
        f"run-{id}", lambda files: sparktrain.run(train, **given, dir=_runs(files.folder)), patterns, *_kind(error)
    )


def sweep(id: str, *patterns: str, **values: object) -> Case:
    given = {"metric": "y", "mode": "max", **values}
    return Case(
        f"run-sweep-{id}",
        lambda files: sparktrain.sweep(train, {"lr": [1]}, dir=_runs(files.folder), **given),
        patterns,
    )


def slots(id: str, *patterns: str, master: str = "local[2]", agents: int | None = None, size: int = 4) -> Case:
    return Case(f"gang-{id}", lambda _: agents_for(Facts(master, {}, 2), agents, 1, size), patterns, ResourceError)


def standby_spec() -> SweepSpec:
    return SweepSpec(name="run", gang=GangSpec(workers=3, standby=2))


def standbys(id: str, *patterns: str, master: str = "local[4]", agents: int | None = None) -> Case:
    slot_count = int(master[6:-1])
    return Case(
        f"gang-standby-{id}",
        lambda _: check_standby(slot_count, agents, standby_spec().gang, f"the session ({master})", "give it more"),
        patterns,
        ResourceError,
    )


def param(id: str, *patterns: str, params: tuple[str, ...]) -> Case:
    return Case(f"param-{id}", lambda _: parse_params(params), patterns)


def _kind(error: type[UserError] | None) -> tuple[type[UserError], ...]:
    return () if error is None else (error,)


def _runs(folder: Path) -> str:
    return str(folder / "runs")


GANG = [
    gang("workers-zero", "^workers", r"\(0\)", "at least 1", "pass 1 or more", workers=0),
    gang("workers-negative", "^workers", r"\(-2\)", "at least 1", workers=-2),
    gang("workers-float", "^workers", r"2\.0 \(float\)", "whole number", "pass an int", workers=2.0),
    gang("workers-bool", "^workers", r"True \(bool\)", "whole number", workers=True),
    gang("workers-list", "^workers", r"\['a', 'b'\] \(list\)", "whole number", workers=["a", "b"]),
    gang("ps-negative", "^ps", r"\(-1\)", "at least 0", ps=-1, backend=Backend.TENSORFLOW),
    gang(
        "ps-ring",
        "^ps=1",
        "'horovod'",
        "only backend 'tensorflow'",
        "drop them, or choose one of these",
        workers=2,
        ps=1,
    ),
    gang("ps-none", "^ps=2", "'none'", "only backend 'tensorflow'", workers=2, ps=2, backend=Backend.NONE),
    gang("evaluator-ring", "evaluator=True", "'horovod'", "only backend 'tensorflow'", workers=2, evaluator=True),
    gang("evaluator-number", "^evaluator", r"1 \(int\)", "True or False", evaluator=1),
    gang("backend-near", "^backend", "'horovd'", "'parameter-server', 'none'", "mean 'horovod'", backend="horovd"),
    gang("backend-case", "^backend", "'TensorFlow'", "mean 'tensorflow'", backend="TensorFlow"),
    gang("backend-far", "^backend", "'nccl'", "must be one of", "pass one of them", backend="nccl"),
    gang("backend-none", "^backend", r"\(None\)", "pass one of them", backend=None),
    gang("min-above", r"^min_workers \(3\)", r"at most workers \(2\)", "lower it", workers=2, min_workers=3),
    gang("min-zero", "^min_workers", r"\(0\)", "at least 1", workers=2, min_workers=0),
    gang(
        "min-ps",
        r"^min_workers \(1\)",
        "cannot shrink",
        "leave it out",
        workers=2,
        min_workers=1,
        ps=1,
        backend=Backend.TENSORFLOW,
    ),
    gang("standby-negative", "^standby", r"\(-1\)", "at least 0", workers=2, standby=-1),
    gang("standby-float", "^standby", r"1\.5 \(float\)", "whole number", workers=2, standby=1.5),
    gang("standby-bool", "^standby", r"True \(bool\)", "whole number", workers=2, standby=True),
    gang("standby-alone", "^standby=1 with workers=1", "there are none", "workers=2 or more", standby=1),
    gang("standby-fewer", "^standby=1 with min_workers=1", "leave out one", workers=2, standby=1, min_workers=1),
    gang("standby-local", "^standby=1 with local_steps=8", "do not heal", workers=2, standby=1, local_steps=8),
    *(
        gang(
            f"standby-{backend.value}",
            f"^standby=1 with backend '{backend.value}': it",
            "only rings of backends 'horovod', 'torch' and 'jax'",
            "leave standby out",
            workers=2,
            standby=1,
            backend=backend,
        )
        for backend in (Backend.TENSORFLOW, Backend.NONE)
    ),
    served("standby", "^standby=1 with backend 'parameter-server'", "train on without a lost one", standby=1),
    gang(
        "standby-ps",
        "^standby=1 with backend 'tensorflow'",
        "parameter servers",
        workers=2,
        ps=1,
        standby=1,
        backend=Backend.TENSORFLOW,
    ),
    gang("local-zero", "^local_steps", r"\(0\)", "at least 1", "pass 1 or more", workers=2, local_steps=0),
    gang("local-negative", "^local_steps", r"\(-8\)", "at least 1", workers=2, local_steps=-8),
    gang("local-bool", "^local_steps", r"True \(bool\)", "whole number", workers=2, local_steps=True),
    gang("local-text", "^local_steps", r"'8' \(str\)", "whole number", workers=2, local_steps="8"),
    gang(
        "local-none",
        "^local_steps=8 with backend 'none'",
        "averages nothing",
        "choose backend 'horovod'",
        workers=2,
        local_steps=8,
        backend=Backend.NONE,
    ),
    gang(
        "local-torch",
        "^local_steps=8 with backend 'torch'",
        "averages gradients",
        "leave local_steps out",
        workers=2,
        local_steps=8,
        backend=Backend.TORCH,
    ),
    gang(
        "local-jax",
        "^local_steps=8 with backend 'jax'",
        "average gradients",
        "leave local_steps out",
        workers=2,
        local_steps=8,
        backend=Backend.JAX,
    ),
    gang("ps-torch", "^ps=1", "'torch'", "only backend 'tensorflow'", workers=2, ps=1, backend=Backend.TORCH),
    gang(
        "local-evaluator",
        "^local_steps=8",
        "evaluator=True",
        "only rings",
        workers=2,
        evaluator=True,
        local_steps=8,
        backend=Backend.TENSORFLOW,
    ),
    gang("mode-none", r"^ps_mode \(None\)", "must be one of 'async'", "'local-sgd'", ps_mode=None),
    gang("mode-number", r"^ps_mode \(1\)", "pass one of them", ps_mode=1),
    served("backup-negative", "^backup_workers", r"\(-1\)", "at least 0", backup_workers=-1),
    served("backup-bool", "^backup_workers", r"True \(bool\)", "whole number", backup_workers=True),
    served("backup-all", r"^backup_workers \(2\)", r"less than workers \(2\)", "lower it", backup_workers=2),
    served("backup-more", r"^backup_workers \(5\)", r"less than workers \(2\)", "lower it", backup_workers=5),
    served("min", r"^min_workers \(1\)", "cannot shrink", min_workers=1),
    served("min-above", r"^min_workers \(3\)", r"at most workers \(2\)", min_workers=3),
    gang("hang-none", "^hang_timeout", "None", "must end", "120", hang_timeout_s=None),
    gang("hang-zero", "^hang_timeout", r"\(0\)", "above 0", hang_timeout_s=0),
    gang("hang-inf", "^hang_timeout", r"\(inf\)", "finite", hang_timeout_s=float("inf")),
    spec_case("gang-of-spec", lambda: SweepSpec(name="a", gang=2), "^gang is 2", r"\(int\)", r"GangSpec\(workers=2\)"),
    slots("slots", "the gang has 4 members and the session has 2 slots", "lower the number of workers"),
    slots("one-slot", "the gang has 2 members and the session has 1 slot:", master="local[1]", size=2),
    standbys("session", r"standby \(2\) beside 3 members needs 5 slots, and the session .* has 4", "or lower standby"),
    standbys("agents", "needs 5 slots, and agents is 4", "raise it to 5", master="local[8]", agents=4),
    Case(
        "gang-standby-machine",
        lambda _: LocalEngine(local(slots=4), 8).agents_for(standby_spec(), None, 1),
        (r"standby \(2\) beside 3 members needs 5 slots, and local\(\) has 4", r"local\(slots=5\)"),
        ResourceError,
    ),
    Case(
        "gang-standby-pool",
        lambda _: check_standby(4, None, standby_spec().gang, "the pool", "open it with sparktrain.pool(agents=5)"),
        ("and the pool has 4", r"agents=5"),
        ResourceError,
    ),
    slots("agents", r"agents \(3\) exceeds the 2 slots", "lower it", agents=3, size=2),
    slots("agents-few", r"agents \(1\) is below the 2 members", "raise it", agents=1, size=2),
    Case(
        "gang-pool",
        lambda _: check_pool(2, 3),
        ("the gang has 3 members and the pool has 2 agents", r"pool\(agents=3\)"),
        ResourceError,
    ),
    Case(
        "gang-without-torch",
        lambda _: check_executors(GangSpec(workers=2, backend=Backend.TORCH), {"tensorflow"}.__contains__),
        ("'torch' of a gang of 2", "the executors have none", r"install sparktrain\[torch\]", "pass a backend"),
        ResourceError,
    ),
    Case(
        "gang-without-jax",
        lambda _: check_executors(GangSpec(workers=2, backend=Backend.JAX), {"tensorflow"}.__contains__),
        ("'jax' of a gang of 2 needs JAX", "the executors have none", r"install sparktrain\[jax\]", "pass a backend"),
        ResourceError,
    ),
    Case(
        "gang-without-horovod",
        lambda _: check_installed(GangSpec(workers=2), {"tensorflow"}.__contains__),
        ("'horovod' of a gang of 2", "is not installed", "make horovod", "backend='tensorflow'"),
        ResourceError,
    ),
]
RUN = [
    run("workers", "^workers", r"\(0\)", "at least 1", workers=0),
    Case(
        "gang-standby-stream",
        lambda _: check_streams(GangSpec(workers=2, standby=1), DataPlan({"train": StreamSource(object())})),
        ("^standby=1 with the stream 'train'", "no process that waits could join it", "leave standby out"),
    ),
    run("backend", "^backend", "'horovdo'", "did you mean 'horovod'", backend="horovdo"),
    run("retries", "^max_retries", r"\(-1\)", "at least 0", max_retries=-1),
    run("weight-zero", r"^weight \(0\)", "a number from 0.001 to 1000", "priority=-1", weight=0),
    sweep("weight-negative", r"^weight \(-1\.5\)", "a number from 0.001 to 1000", weight=-1.5),
    run("weight-infinite", r"^weight \(inf\)", "a number from 0.001 to 1000", weight=float("inf")),
    sweep("weight-no-number", r"^weight \(nan\)", "a number from 0.001 to 1000", weight=float("nan")),
    run("weight-huge", r"^weight \(1e\+308\)", "a number from 0.001 to 1000", weight=1e308),
    run("weight-tiny", r"^weight \(1e-310\)", "a number from 0.001 to 1000", weight=1e-310),
    sweep("weight-of-many-digits", r"^weight \(1000", "a number from 0.001 to 1000", weight=10**400),
    run("weight-text", r"^weight \('much'\)", "a number from 0.001 to 1000", weight="much"),
    run("priority-fraction", "^priority", r"0\.5", priority=0.5),
    run("hang", "^hang_timeout", "'soon'", "not a duration", "'90s'", hang_timeout="soon"),
    run("hang-none", "^hang_timeout", "None", "must end", hang_timeout=None),
    run("healing", "^healing", r"\(.maybe.\)", "must be on or off", healing="maybe"),
    sweep("healing-number", "^healing", r"1 \(int\)", "True or False", workers_per_trial=2, healing=1),
    run("standby", "^standby", r"\(-1\)", "at least 0", standby=-1),
    run("standby-text", "^standby", r"'one' \(str\)", "whole number", standby="one"),
    run("standby-backend", "^standby=1 with backend 'none'", "connects nothing", standby=1),
    run("standby-healing", "^standby=1 with healing=False", "leave out", standby=1, healing=False, backend="horovod"),
    run(
        "standby-nccl",
        "^standby=1 with backend 'torch' and gpus=1",
        "NCCL connects members",
        "train on CPUs, or leave standby out",
        workers=2,
        standby=1,
        gpus=1,
        backend="torch",
    ),
    run("standby-near", "no option 'spares'; did you mean 'standby'", spares=1),
    sweep("standby", "^standby=1 with sweep", "only a run of one gang", r"sparktrain\.run\(standby=1\)", standby=1),
    Case(
        "run-launch-standby",
        lambda files: sparktrain.launch(None, train, {"lr": [1]}, dir=_runs(files.folder), standby=2),
        ("^standby=2 with launch", "only a run of one gang"),
    ),
    run("params-list", "^params", r"\[0\.1\] \(list\)", "a dict is expected", params=[0.1]),
    run("params-value", "^params: 'lr'", "object", "pass", params={"lr": object()}),
    run("params-name", "^params", "'ctx'", "choose another name", params={"ctx": 1}),
    run("params-missing", r"train\(\)", "'lr' has no value", "add 'lr' to params", error=FunctionError, params=None),
    run(
        "params-unknown",
        "'learning_rate'",
        "it takes lr",
        "rename it in params",
        error=FunctionError,
        params={"lr": 1, "learning_rate": 1},
    ),
    run("retries-old", "run has no option 'retries'; did you mean 'max_retries'", "its options are workers", retries=1),
    sweep("agents", "no option 'agents'; did you mean 'max_concurrent_trials'", agents=2),
    run("concurrent", "no option 'max_concurrent_trials'; did you mean 'agents'", max_concurrent_trials=2),
    run("near", "no option 'min_worker'", "did you mean 'min_workers'", min_worker=1),
    run("trials", "no option 'trials'", "its options are", trials=3),
    run("name", "^name", "'a b'", "use 'a-b'", name="a b"),
    run("metric", "^metric", "''", "name a key", metric=""),
    run("mode", "^mode", "'best'", "'max' or 'min'", mode="best"),
    run("mode-silent", "^metric 'speed'", "which of its values are better", "pass mode='max'", metric="speed"),
    sweep("mode-silent", "^metric 'y'", "which of its values are better", "or mode='min'", mode=None),
    run("preload", "^preload", "'numpy'", "a list of module names", preload="numpy"),
    sweep("workers", "^workers_per_trial", r"\(0\)", "at least 1", workers_per_trial=0),
    sweep("workers-text", "^workers_per_trial", r"'2' \(str\)", "whole number", workers_per_trial="2"),
    sweep("backend", "^backend", "'nonee'", "did you mean 'none'", workers_per_trial=2, backend="nonee"),
    run("local", "^local_steps", r"\(0\)", "at least 1", local_steps=0),
    run("local-text", "^local_steps", r"'often' \(str\)", "whole number", local_steps="often"),
    run("local-none", "^local_steps=4 with backend 'none'", "averages nothing", local_steps=4),
    run("local-mode", "ps_mode 'local-sgd' without local_steps", ps=1, ps_mode="local-sgd", backend="parameter-server"),
    run("local-other", "no option 'sync_every'; did you mean 'local_steps'", sync_every=4),
    sweep(
        "served",
        "^backend 'parameter-server' of a sweep",
        "no parameter servers",
        "sparktrain.run",
        workers_per_trial=2,
        backend="parameter-server",
    ),
    sweep("local", "^local_steps=4 with backend 'none'", workers_per_trial=2, backend="none", local_steps=4),
    sweep("ps", "no option 'ps'", "its options are", ps=1),
    sweep("restarts-old", "no option 'max_restarts'; did you mean 'max_retries'", max_restarts=1),
    spec_case("run-option", lambda: RunOptions(workers=1, max_restart=1), "did you mean 'max_retries'"),
    spec_case("run-sweep-option", lambda: SweepOptions(worker_per_trial=1), "mean 'workers_per_trial'"),
]
PARAMS = [
    param("equals", "--param 'lr'", "no '='", "lr=", params=("lr",)),
    param("empty", "--param 'lr='", "has no value", params=("lr=",)),
    param("several", "--param 'lr=0.1,0.01'", "2 values, a run takes one", "--grid", params=("lr=0.1,0.01",)),
    param("twice", "'lr' is given twice", "remove one", params=("lr=1", "lr=2")),
    param("nan", "--param 'lr=nan'", "finite", params=("lr=nan",)),
    param("json", "--param 'x=\\[1'", "JSON list", params=("x=[1",)),
    Case(
        "param-file-backend",
        lambda files: load_params(files.write("a.yaml", "grid:\n  x: [1]\nbackend: horovot\n")),
        (r"a\.yaml:3: backend", "'horovot'", "did you mean 'horovod'"),
    ),
    Case(
        "param-file-workers",
        lambda files: load_params(files.write("a.yaml", "grid:\n  x: [1]\nworkers_per_trial: 0\n")),
        (r"a\.yaml:3: workers_per_trial", r"\(0\)", "at least 1"),
    ),
]
CASES = [*GANG, *RUN, *PARAMS]
