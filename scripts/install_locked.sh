#!/usr/bin/env bash
# Installs the packages of a lock, and the checkout itself, into an environment that has pip.
#
#   scripts/install_locked.sh ENVIRONMENT LOCK
#
# PyPI has PySpark as source alone, and uv would leave 1.4 GB of it in its cache for each environment: its wheel is built
# once for all, and stays in ${XDG_CACHE_HOME:-~/.cache}/sparktrain/wheels, in a folder named after the hash of the source.
set -euo pipefail
cd "$(dirname "$0")/.."

venv=$1
lock=$2
wheels=${XDG_CACHE_HOME:-$HOME/.cache}/sparktrain/wheels
building= # removed at the end
trap 'rm -rf "$building"' EXIT

# The packages of the lock with a name that matches a pattern, and their hashes.
named() { awk -v name="$1" '/^[^ ]/ { split($0, parts, /[[=]/); wanted = parts[1] ~ "^(" name ")$" } wanted' "$lock"; }

pip() { "$venv/bin/python" -m pip "$1" --no-input --disable-pip-version-check --require-hashes "${@:2}"; }

# The system's certificates, as pip uses them where it is configured so; links where cache and environment share a disk.
uv_install() {
  "$venv/bin/uv" pip install --quiet --native-tls --python "$venv/bin/python" --no-deps --no-build-isolation "$@"
}

# Two runs may start at once, also of two checkouts: the second waits for the first.
build_pyspark() {
  exec 8<"$wheels"
  flock 8
  if [[ ! -d $pyspark ]]; then
    building=$(mktemp -d -p "$wheels" .pyspark-XXXXXX)
    TMPDIR=$building pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir "$building/wheel" -r <(named pyspark)
    mv "$building/wheel" "$pyspark"
  fi
  exec 8<&-
}

# What installs the others: uv does it in parallel, and the rest builds packages that come as source. pip checks their
# hashes too, and would fetch builders of its own unchecked.
pip install -r <(named 'packaging|setuptools|uv|wheel')
uv_install --require-hashes -r <(awk '/^[^ ]/ { wanted = !/^pyspark[[=]/ } wanted' "$lock")
if [[ $(named pyspark) ]]; then
  mkdir -p "$wheels"
  pyspark=$wheels/pyspark-$(named pyspark | sha256sum | head -c 16)
  build_pyspark
  uv_install "$pyspark"/*.whl
fi
uv_install --editable .
