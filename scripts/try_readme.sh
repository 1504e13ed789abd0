#!/usr/bin/env bash
# Does what a newcomer does: builds the wheel, and runs each line and each program of the README as it stands, in an empty
# folder and an empty environment. Downloads TensorFlow; takes some minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
home=$(mktemp -d)

# A JVM that still ends reads its jars: those of the programs are given some seconds.
clean() {
  for _ in $(seq 50); do
    pgrep -f "$home" >/dev/null || break
    sleep 0.2
  done
  rm -rf "$home"
}
trap clean EXIT

.venv/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$home/wheels" .
PYTHONPATH=$root .venv/bin/python - "$home" <<'PYTHON'
import sys
from pathlib import Path
from tests.examples.readme import commands, programs

home = Path(sys.argv[1])
(sweep, _), (gang, _) = programs()
(home / "empty").mkdir()
(home / "empty" / "sweep.py").write_text(sweep)
(home / "empty" / "gang.py").write_text(gang)
first, *others = commands()
lines = [*first, "python sweep.py", *(line for block in others for line in block), "python gang.py"]
(home / "lines.sh").write_text("\n".join(["set -ex", *lines, ""]))
PYTHON

# Only the location of the wheel is added; everything else is as in the README.
cd "$home/empty"
env -u VIRTUAL_ENV -u PYTHONPATH -u SPARK_HOME -u PYSPARK_PYTHON PATH=/usr/local/bin:/usr/bin:/bin \
  PIP_FIND_LINKS="$home/wheels ${PIP_FIND_LINKS:-}" bash "$home/lines.sh"
echo "README: all lines and programs run"
