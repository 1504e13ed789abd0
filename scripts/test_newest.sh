#!/usr/bin/env bash
# Tests with the packages that the registry resolves today, without the lock: what a new installation gets. On the oldest and
# the newest Python of pyproject.toml, or those that PYTHONS names. Prints what differs from the lock.
#
#   [PYTHONS="python3.11"] [WITH="pyspark[connect]==4.0.5 pandas>=3"] scripts/test_newest.sh [OPTION OF PYTEST]...
#
# WITH replaces what pyproject.toml asks for. With another PySpark, the tests that use Spark run alone. The environments
# are .venv-newest/3.11 and so on, rebuilt each time. Exit status 2: a Python is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
subject=test-newest
source scripts/common.sh

rings=(tests/unit tests/histories tests/contract)
without_spark=(
  'tests/training/test_local_gang.py::test_a_local_gang_trains_what_one_process_trains[tensorflow]'
  tests/process/test_sklearn_search.py::test_a_pipeline_has_the_scores_of_grid_search_to_the_last_bit
  tests/process/test_optuna.py::test_an_ordinary_objective_runs_on_executors_and_its_study_opens_meanwhile
  tests/process/test_boosting.py::test_a_killed_training_resumes_and_ends_with_the_model_of_an_unbroken_one
)
on_spark=(
  tests/spark/test_sweep.py::test_trials_run_on_both_executors_in_separate_processes
  tests/spark/test_data.py::test_a_gang_trains_on_a_dataframe_and_others_find_its_rows_again
  tests/spark/test_sklearn.py
  tests/spark/test_libraries.py
  tests/spark/test_predict.py::test_each_worker_loads_the_model_once_and_other_columns_stay
  tests/spark/test_predict.py::test_sql_functions
  tests/spark/test_connect.py::test_sweep_and_pool_work_on_a_connect_session
)
tests=("${rings[@]}" "${without_spark[@]}" "${on_spark[@]}")
if [[ ${WITH:-} == *pyspark* ]]; then
  # PySpark 4.0 and 4.1 leave the sockets open through which they read results.
  tests=(-W 'ignore:unclosed <socket.socket:ResourceWarning' "${on_spark[@]}")
fi

versions() { sed -nE 's/^([a-z0-9._-]+)(\[.*\])?==([^ ;]+).*/\1 \3/p' "$1" | sort; }

install_newest() {
  local venv=$1
  rm -rf "$venv"
  "$2" -m venv "$venv"
  # Without its cache, uv leaves no source of PySpark there.
  .venv/bin/uv pip compile pyproject.toml --quiet --native-tls --no-cache --generate-hashes --no-header --no-annotate \
    --extra dev --override <(tr ' ' '\n' <<<"${WITH:-}") --python "$venv/bin/python" --output-file "$venv/packages.txt"
  scripts/install_locked.sh "$venv" "$venv/packages.txt" >"$venv/log" 2>&1 || {
    cat "$venv/log" >&2
    exit 1
  }
}

status=0
for python in ${PYTHONS:-python3.11 python3.13}; do
  "$python" -c 'import ensurepip, venv' 2>/dev/null || {
    say "$python is missing, or has no venv: install it, or name others by PYTHONS" >&2
    exit 2
  }
  version=$("$python" -c 'import platform; print(platform.python_version())')
  venv=.venv-newest/${version%.*}
  install_newest "$venv" "$python"
  say "$(date --utc +%F), Python $version; versions of the lock, and of today:"
  join -a 1 -a 2 -e none -o 0,1.2,2.2 <(versions constraints.txt) <(versions "$venv/packages.txt") |
    awk '$2 != $3 { print "  " $1, $2, $3 }'
  "$venv/bin/python" -m pytest -q -n "${WORKERS:-2}" -m "not all and not rig and not torch" "${tests[@]}" "$@" || status=$?
done
exit "$status"
