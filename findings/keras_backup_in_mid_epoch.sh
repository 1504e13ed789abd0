#!/usr/bin/env bash
# Keras's BackupAndRestore(save_freq=2) saves after each second batch. What does a fit repeat that ended in mid-epoch?
#
# A fit of 3 epochs with 10 batches each ends after batch 6 of epoch 1, when 17 steps are done; the newest backup has 16.
# The next fit starts epoch 1 again at batch 0 with the weights after 16 steps: it trains the first 6 batches of the epoch
# a second time, ends after 36 optimizer steps in place of 30, and with other weights, without a word. A rate that
# follows optimizer.iterations is 6 steps ahead of the data from then on.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet keras==3.15.1 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
KERAS_HOME=$folder KERAS_BACKEND=jax JAX_PLATFORMS=cpu "$folder/env/bin/python" - "$folder/backup" <<'PYTHON'
import sys

import keras
import numpy as np

X = np.arange(40, dtype="float32")[:, None]


class Look(keras.callbacks.Callback):
    def __init__(self, end=None):
        super().__init__()
        self.batches, self.end = [], end

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        self.batches.append((self.epoch, batch))
        if self.batches[-1] == self.end:
            raise KeyboardInterrupt


def fit(*callbacks):
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.layers.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1e-4), "mse")
    try:
        model.fit(X, X / 10, batch_size=4, epochs=3, shuffle=False, verbose=0, callbacks=list(callbacks))
    except KeyboardInterrupt:
        pass
    return int(model.optimizer.iterations), float(model.get_weights()[0][0, 0])


backup = lambda: keras.callbacks.BackupAndRestore(sys.argv[1], save_freq=2)
whole, weight = fit()
ended, _ = fit(backup(), Look((1, 6)))
look = Look()
resumed, other = fit(backup(), look)
print(f"keras {keras.__version__}: unbroken {whole} steps, weight {weight:.6f}; ended after {ended}; the next fit starts with "
      f"(epoch, batch) {look.batches[0]} and ends after {resumed} steps, weight {other:.6f}")
assert (whole, ended, look.batches[0], resumed) == (30, 17, (1, 0), 36)
assert abs(weight - other) > 1e-4
PYTHON
