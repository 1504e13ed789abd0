# `make demo` and `make test` work on a fresh clone: both set up what is missing first.

BIN := .venv/bin
RINGS := architecture unit histories contract process spark hadoop training torch faults hosts examples
BENCHMARKS := local_start command_start coordinator scaling scaling_cases allocation grpc_agents isolation keras_trials first_line heavy_tail stopping optuna_rival \
    recovery growth notice first_allreduce parameter_server step_time step_trace local_steps checkpoint_stall memory_checkpoint kills healing_kills driver_death cluster_coordinator resume \
    hdfs_throughput journal reports suggest search_quality tracking report page runs_page short_trials sklearn_search fusion data_feed data_step data_write stream datafeed_rows tfcluster inference yarn doctor
TORCH_BENCHMARKS := torch_feed torch_shuffle torch_step torch_sharded torch_recovery
CORE_PROCESS := agent commands exit_status failures forming gang_runs local_engine log member member_sessions open_streams orphans parameter_server \
    rendezvous scratch sweeps whole_runs zygote
CORE := tests/architecture tests/unit tests/contract $(CORE_PROCESS:%=tests/process/test_%.py) \
    tests/spark/test_sweep.py::test_trials_run_on_both_executors_in_separate_processes \
    'tests/training/test_local_gang.py::test_a_local_gang_trains_what_one_process_trains[tensorflow]' \
    'tests/faults/test_gangs.py::test_a_killed_process_costs_a_restart[none-member-0]'
WORKERS := 3
BASE := origin/main
ARGS :=
PYTHONS := python3.11 python3.13
WITH :=
PYTEST = $(BIN)/pytest -n $(WORKERS) $(or $(wildcard $(RINGS:%=tests/%)),$(error tests/ has none of the rings: $(RINGS)))

.PHONY: help packages setup horovod torch hadoop kubernetes kueue spark-operator tools classes demo demo-data demo-gang demo-yarn demo-kubernetes demo-connect test test-unit test-touched touched-history test-core test-newest test-newest-python test-all test-kubernetes test-image test-kueue test-spark-operator record-kubernetes test-rig test-torch test-gpu bench profile soak try-readme check lint types imports \
    words house docs tables format lock clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 10

packages: ## .venv with the locked packages, without Java and data: what make test-unit needs
	@scripts/setup.sh packages

setup: ## Java, data, and .venv with the locked packages; at once when all is there
	@scripts/setup.sh

horovod: setup ## the ring backend: builds Horovod's wheel once for this TensorFlow, 2 to 5 minutes
	@scripts/build_horovod.sh

torch: setup ## torch for tests, in .venv-torch beside .venv, and Horovod built for it: once, ten minutes
	@scripts/install_torch.sh
	@scripts/build_horovod.sh .venv-torch

hadoop: setup ## real daemons of HDFS, YARN and Kerberos for tests: fetched with Maven and apt-get once, two minutes
	@scripts/fetch_hadoop.sh
	@$(BIN)/python -m scripts.store_hadoop_classes

kubernetes: setup horovod ## real daemons of Kubernetes for tests, as root: built from Go's modules once, 9 to 14 minutes of a core
	@scripts/build_kubernetes.sh
	@scripts/fetch_spark_operator.sh

spark-operator: ## Kubeflow's Spark operator, for that Kubernetes: built from its Go module once, three minutes of a core
	@scripts/build_spark_operator.sh

kueue: ## queues for the pods of that Kubernetes: built from Go's modules once, five minutes of a core
	@scripts/build_kueue.sh

tools: ## of Debian, for tests: Chromium for pages, ip and tc for hosts
	@scripts/install_test_tools.sh

classes: setup ## stores Spark's classes as JVMs need them, once, a minute: then Spark starts with half the work
	@$(BIN)/python scripts/store_classes.py

demo: ## a sweep of four trials on real images, on a Spark of this machine
	@scripts/setup.sh demo
	$(BIN)/sparktrain sweep examples/fashion_mnist.py:train \
	    --grid learning_rate=0.1,0.01 --grid dropout=0.2,0.5 --grid epochs=2 --metric accuracy

demo-data: setup ## a table of 200,000 rows made by Spark, a gang of two that trains on it, and a scored table
	$(BIN)/python examples/churn.py

demo-gang: setup horovod ## a ring of two members on the same images; one is killed in the middle, and the other one keeps its process
	@runs=$$(mktemp -d) && \
	$(BIN)/sparktrain run examples/fashion_mnist.py:train --workers 2 --dir $$runs --name fashion \
	    --param learning_rate=0.01 --param dropout=0.2 --param kill_at=120 --metric accuracy && \
	echo && echo "The processes of both members, from their logs:" && \
	$(BIN)/sparktrain logs $$runs/fashion --all | grep "in process"

demo-connect: setup hadoop tools ## a Connect server and workers on hosts of their own; a client that no host can connect to is killed, and another one attaches
	$(BIN)/python -m scripts.demo_connect

demo-yarn: setup horovod hadoop ## HDFS and YARN of this machine, a sweep and a gang on the labelled node, a killed container
	$(BIN)/python scripts/demo_yarn.py

demo-kubernetes: kubernetes ## a Kubernetes of two nodes on this machine, a sweep and a gang in pods with a GPU, a deleted pod, a lack of memory; as root
	$(BIN)/python -m scripts.demo_kubernetes

test: horovod hadoop classes tools ## what every change must pass; RINGS="unit contract" or ARGS="-k journal" select: see docs/development.md
	$(PYTEST) -m "not all and not rig and not torch" $(ARGS)

test-unit: packages ## the innermost ring, in less than 30 s: after each edit
	@scripts/test_unit.sh $(ARGS)

test-touched: horovod hadoop classes tools ## what the changed files can reach, at most ten minutes for most changes; against BASE
	@set -f; tests=$$($(BIN)/python -m scripts.touched --base $(BASE) $(CORE)) || exit; [ -n "$$tests" ] || exit 0; \
	$(BIN)/pytest -n $(WORKERS) $$tests -m "not all and not rig and not torch" $(ARGS) || [ $$? = 5 ]

touched-history: packages ## how long make test-touched would have taken for each of the last 700 commits
	@$(BIN)/python -m scripts.touched --history 700 $(CORE)

test-core: horovod classes ## the inner rings, and one sweep, gang and kill, in five minutes: before each commit
	$(BIN)/pytest -n $(WORKERS) $(CORE) -m "not all and not rig and not torch" $(ARGS)

test-newest: setup classes ## both inner rings and a run of each kind with the packages of today, without the lock; WITH="pyspark[connect]==4.0.5" replaces one
	@WITH="$(WITH)" PYTHONS="$(PYTHONS)" WORKERS=$(WORKERS) scripts/test_newest.sh $(ARGS)

test-newest-python: ## the innermost ring on Python 3.13, of a Debian 13 that debootstrap fetches once (as root)
	@scripts/test_newest_python.sh $(ARGS)

test-all: horovod hadoop classes tools torch ## all tests: those of make test, test-rig and test-torch, and each fault case at full length
	$(PYTEST) -m "not torch" $(ARGS)
	$(MAKE) --no-print-directory test-torch

test-torch: horovod torch ## the tests that need torch, in the environment of make torch
	.venv-torch/bin/python -m pytest -n $(WORKERS) $(wildcard $(RINGS:%=tests/%)) -m torch $(ARGS)

test-gpu: ## the tests that need an NVIDIA GPU; where there is none, it reports that and ends
	@scripts/test_gpu.sh $(ARGS)

test-kubernetes: kubernetes ## the tests on a Kubernetes of two nodes, which this machine is; as root, some minutes
	$(BIN)/pytest -n 2 -m "not image and not kueue and not operator" tests/kubernetes $(ARGS)

test-image: kubernetes ## conf/kubernetes/Dockerfile, built without a registry, and a gang in pods of it; as root, some minutes and 2 GB
	$(BIN)/pytest -n 0 -m image tests/kubernetes $(ARGS)

test-kueue: kubernetes kueue ## applications in a queue of Kueue, on that Kubernetes; as root, a minute
	$(BIN)/pytest -n 0 -m kueue tests/kubernetes $(ARGS)

test-spark-operator: kubernetes spark-operator ## the application of conf/kubernetes for the Spark operator, by that operator; as root, a minute
	$(BIN)/pytest -n 0 -m operator tests/kubernetes $(ARGS)

record-kubernetes: kubernetes kueue ## what the API server of that Kubernetes answers, for tests without one: after a change of its version; as root
	$(BIN)/python -m scripts.record_kubernetes
	$(BIN)/python -m tests.support.kubernetes.doctor_answers

test-rig: horovod hadoop classes ## the tests of what tests use: Hadoop's daemons, packs, helpers
	$(PYTEST) -m rig $(ARGS)

bench: horovod hadoop torch ## all benchmarks, about half an hour; make bench-isolation runs one: see docs/benchmarks.md
	@for name in $(BENCHMARKS); do $(BIN)/python -m benchmarks.$$name || exit; done
	@for name in $(TORCH_BENCHMARKS); do .venv-torch/bin/python -m benchmarks.$$name || exit; done

profile: horovod ## where the time of one case goes, stage by stage: CASE=trial, search_cv, torch_step, shuffle or recovery
	@$(if $(filter torch%,$(CASE)),.venv-torch/bin,$(BIN))/python -m benchmarks.time_budget $(CASE)

soak: horovod hadoop ## an hour of sweeps and gangs under random kills, outages, full disks and clock jumps; ARGS="--seconds 600 --seed 7"
	@$(BIN)/python -m benchmarks.soak $(ARGS)

bench-torch_%: torch
	@.venv-torch/bin/python -m benchmarks.torch_$*

bench-%: horovod hadoop
	@$(BIN)/python -m benchmarks.$*

try-readme: setup ## the README from top to bottom, as a newcomer: a wheel, an empty environment, an empty folder; some minutes
	@scripts/try_readme.sh

check: lint types imports words house ## lint, types, imports, words and figures of the tree

lint: setup ## ruff: rules and format
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: setup ## mypy --strict on the package
	$(BIN)/mypy

imports: setup ## the layers between the packages
	$(BIN)/lint-imports

words: setup ## spelling, and the words that docs, comments and messages avoid: scripts/words.py has the rules
	@$(BIN)/python -m scripts.words

house: setup ## figures of the source tree, each within its bound: scripts/house.py has them
	@$(BIN)/python -m scripts.house

docs: setup ## the documentation as a site in site/: every internal link is checked, and that pages fetch nothing from elsewhere
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@$(BIN)/python -m scripts.check_site site

tables: setup ## write the tables that docs/reference/test-all.md and docs/how-a-trial-lives.md have of the tests
	@$(BIN)/python -m scripts.all_table
	@$(BIN)/python -m tests.trainings

format: setup ## put imports and format right
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# Without its cache, where uv would leave PySpark's source.
LOCK = $(BIN)/uv pip compile pyproject.toml --quiet --no-cache --generate-hashes --python-version 3.11 --no-header --no-annotate

lock: setup ## rewrite both locks from pyproject.toml: of everything, and of what a demo needs, with the same versions
	$(LOCK) --extra dev --output-file constraints.txt
	$(LOCK) --extra demo --constraints constraints.txt --output-file constraints-demo.txt

clean: ## remove .venv, caches and what Spark left behind; results in sparktrain-runs stay
	rm -rf .venv .venv-newest .venv-torch .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist site
	rm -rf artifacts metastore_db spark-warehouse derby.log
	find . -name __pycache__ -prune -exec rm -rf {} +
