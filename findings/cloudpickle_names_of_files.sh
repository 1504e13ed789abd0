#!/usr/bin/env bash
# A patch release of cloudpickle: what is left of the file of a function that it pickled?
#
# 3.1.2 keeps it. In 3.1.3 co_filename of a function pickled by value is "<dynamic-code>": in the very process that
# has the file open, inspect.getsource() fails for the copy, and its traceback has no line of source. So whatever reads
# the source of a function, such as the AutoGraph of TensorFlow, fails after a round trip.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
cat > "$folder/program.py" <<'PYTHON'
import inspect
import pickle
import sys
import traceback

import cloudpickle


def inverse(x):
    return 1 / x


copy = pickle.loads(cloudpickle.dumps(inverse))
try:
    source = inspect.getsource(copy)
except OSError as error:
    source = f"OSError: {error}"
try:
    copy(0)
except ZeroDivisionError:
    shown = traceback.format_exc()
print(f"cloudpickle {cloudpickle.__version__}: {copy.__code__.co_filename}; source: {source.splitlines()[0]}; the traceback has "
      f"its line: {'return 1 / x' in shown}")
keeps = sys.argv[1] == "keeps"
assert (copy.__code__.co_filename == (__file__ if keeps else "<dynamic-code>")) and ("return 1 / x" in shown) == keeps
assert source.startswith("def inverse" if keeps else "OSError")
PYTHON
for release in "3.1.2 keeps" "3.1.3 loses"; do
  "$folder/env/bin/pip" install --quiet "cloudpickle==${release% *}"
  "$folder/env/bin/python" "$folder/program.py" "${release#* }"
done
