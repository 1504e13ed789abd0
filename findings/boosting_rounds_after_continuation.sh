#!/usr/bin/env bash
# A boosting that continues a model of 4 rounds for 3 more: which number of the round do callbacks get?
#
# XGBoost (xgb_model=): LearningRateScheduler and each callback get 0, 1, 2, so a schedule of rates starts again, and
# evaluations are printed as rounds 0 to 2. But best_iteration of EarlyStopping, in the same training, counts the rounds
# of the model too: 6. LightGBM (init_model=): env.iteration is 4, 5, 6, and reset_parameter in the same training calls
# its function with 0, 1, 2; a list must have 3 rates, although end_iteration is 7.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet xgboost-cpu==3.2.0 lightgbm==4.7.0 numpy==2.4.6 scipy==1.17.1
"$folder/env/bin/python" - <<'PYTHON'
import lightgbm as lgb
import numpy as np
import xgboost as xgb

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 3))
y = X[:, 0] + rng.normal(size=200)


class Look(xgb.callback.TrainingCallback):
    def __init__(self):
        self.rounds = []

    def before_iteration(self, model, epoch, evals_log):
        self.rounds.append(epoch)
        return False


train, valid = xgb.DMatrix(X[:150], y[:150]), xgb.DMatrix(X[150:], y[150:])
params = {"objective": "reg:squarederror", "nthread": 1}
first = xgb.train(params, train, 4)
look, scheduled = Look(), []
rate = xgb.callback.LearningRateScheduler(lambda epoch: scheduled.append(epoch) or 0.1)
model = xgb.train(
    params, train, 3, evals=[(valid, "valid")], xgb_model=first, verbose_eval=False,
    callbacks=[rate, look, xgb.callback.EarlyStopping(rounds=50)],
)
print(f"xgboost {xgb.__version__}: {model.num_boosted_rounds()} rounds; callbacks got {look.rounds}, the schedule "
      f"{scheduled}; best_iteration is {model.best_iteration}")
assert (model.num_boosted_rounds(), look.rounds, scheduled, model.best_iteration) == (7, [0, 1, 2], [0, 1, 2], 6)

params = {"objective": "regression", "verbose": -1, "num_threads": 1}
train = lgb.Dataset(X[:150], y[:150], free_raw_data=False)
first = lgb.train(params, train, 4)
seen, scheduled = [], []
rate = lgb.reset_parameter(learning_rate=lambda number: scheduled.append(number) or 0.1)
lgb.train(
    params, train, 3, init_model=first,
    callbacks=[rate, lambda env: seen.append((env.iteration, env.end_iteration))],
)
print(f"lightgbm {lgb.__version__}: callbacks got (iteration, end_iteration) {seen}, the schedule {scheduled}")
assert (seen, scheduled) == ([(4, 7), (5, 7), (6, 7)], [0, 1, 2])
try:
    lgb.train(params, train, 3, init_model=first, callbacks=[lgb.reset_parameter(learning_rate=[0.1] * 7)])
except ValueError as error:
    print(f"a list of 7 rates: {error}")
else:
    raise AssertionError("a list of 7 rates is accepted")
PYTHON
