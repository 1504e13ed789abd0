#!/usr/bin/env bash
# Runs the tests that need an NVIDIA GPU, with the options of pytest that it gets: see docs/development.md. Where there is no
# GPU it reports that, and succeeds. Installs what is missing first, TensorFlow's libraries of CUDA (3 GB) among it.
set -euo pipefail
cd "$(dirname "$0")/.."
subject=gpu
source scripts/common.sh

lock=constraints-cuda.txt
stamp=.venv/.cuda # the lock that is installed

if ! [[ $(nvidia-smi --query-gpu=index --format=csv,noheader 2>/dev/null) =~ [0-9] ]]; then
  say "skipped, for nvidia-smi lists no GPU here: run it on a machine with an NVIDIA GPU"
  exit
fi
[[ $(uname -m) == x86_64 ]] || fail "$lock has packages for x86_64 alone, and this machine is $(uname -m)" 2
make --no-print-directory horovod
if ! cmp --quiet "$stamp" "$lock"; then
  say "installing the libraries of CUDA into .venv (3 GB, some minutes, once)"
  .venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check --require-hashes --no-deps \
    --only-binary :all: -r "$lock" || fail "the packages of $lock cannot be installed: see above"
  cp "$lock" "$stamp"
fi
.venv/bin/python -c 'import sys, tensorflow as tf; sys.exit(not tf.config.list_physical_devices("GPU"))' ||
  fail "nvidia-smi lists a GPU, and TensorFlow sees none: its lines above say why, most likely an old driver"
exec .venv/bin/pytest -n 0 -s -m gpu tests/gpu "$@"
