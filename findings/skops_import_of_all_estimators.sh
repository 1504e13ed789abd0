#!/usr/bin/env bash
# What does a process import that loads one small model from a file of skops?
#
# All of scikit-learn. The list of types that skops trusts is computed when skops.io is imported, from all public
# estimators, and so each module that defines one is imported too: 439 modules where the model needs 196, which takes
# half as long again, or twice as long. A pickle of the same model needs the modules of its class alone. A process for
# each model, as in a serverless function or a job of a scheduler, pays for this each time.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet skops==0.16.0 scikit-learn==1.9.1
cat > "$folder/program.py" <<'PYTHON'
import pickle
import sys

import skops.io
from sklearn.linear_model import LinearRegression

model = LinearRegression().fit([[0.0], [1.0]], [0.0, 1.0])
skops.io.dump(model, f"{sys.argv[1]}/model.skops")
with open(f"{sys.argv[1]}/model.pickle", "wb") as file:
    pickle.dump(model, file)
PYTHON
cat > "$folder/other_process.py" <<'PYTHON'
import sys
import time

started = time.perf_counter()
if sys.argv[1] == "skops":
    import skops.io

    model = skops.io.load(f"{sys.argv[2]}/model.skops")
else:
    import pickle

    with open(f"{sys.argv[2]}/model.pickle", "rb") as file:
        model = pickle.load(file)
seconds = time.perf_counter() - started
modules = sum(name.startswith("sklearn.") for name in sys.modules)
unrelated = "sklearn.gaussian_process" in sys.modules
print(f"{sys.argv[1]}: {modules} modules of scikit-learn, among them gaussian_process: {unrelated}, {seconds:.2f} s")
assert abs(model.predict([[0.5]])[0] - 0.5) < 1e-9
assert unrelated == (sys.argv[1] == "skops"), "skops has changed when it imports all estimators"
PYTHON
"$folder/env/bin/python" "$folder/program.py" "$folder"
"$folder/env/bin/python" "$folder/other_process.py" pickle "$folder"
"$folder/env/bin/python" "$folder/other_process.py" skops "$folder"
"$folder/env/bin/pip" list --format freeze | grep -i "^skops\|^scikit-learn"
