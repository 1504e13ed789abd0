#!/usr/bin/env bash
# What is left of a class of msgspec.Struct that cloudpickle sends by value, as it sends a class of a script?
#
# The class arrives, with its name and its annotations, but without its fields: cloudpickle makes the class empty, sets
# its attributes afterwards, and msgspec reads the fields when the class is made. A call with the arguments of the
# original raises TypeError. A dataclass of the same fields arrives whole.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet cloudpickle==3.1.2 msgspec==0.22.0
cat > "$folder/program.py" <<'PYTHON'
import sys
from dataclasses import dataclass

import cloudpickle
import msgspec


class Point(msgspec.Struct):
    x: int
    y: int = 0


@dataclass
class Pair:
    x: int
    y: int = 0


with open(sys.argv[1], "wb") as file:
    cloudpickle.dump((Point, Pair), file)
assert Point(1).x == Pair(1).x == 1
PYTHON
cat > "$folder/other_process.py" <<'PYTHON'
import pickle
import sys

import cloudpickle
import msgspec

with open(sys.argv[1], "rb") as file:
    point, pair = pickle.load(file)
assert pair(1, 2).y == 2
try:
    problem = f"no error: {point(1)}"
except TypeError as error:
    problem = f"TypeError: {error}"
print(f"cloudpickle {cloudpickle.__version__}, msgspec {msgspec.__version__}: {point.__name__} arrives with the fields "
      f"{point.__struct_fields__} and the annotations {list(point.__annotations__)}; Point(1): {problem}")
assert point.__struct_fields__ == () and list(point.__annotations__) == ["x", "y"] and problem.startswith("TypeError")
PYTHON
"$folder/env/bin/python" "$folder/program.py" "$folder/classes"
"$folder/env/bin/python" "$folder/other_process.py" "$folder/classes"
