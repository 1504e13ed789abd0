"""Models for tests of predictions, made by Keras in a process of its own: python -m tests.spark.scoring_models FOLDER.

`signatures.json` has what each takes and gives, and `expected.npz` what each gives for `features`.
"""

import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np

FLOATS = 4
ROWS = 25


def features() -> np.ndarray:
    """Rows for `churn`, by `id`."""
    return np.arange(ROWS * FLOATS, dtype=np.float64).reshape(ROWS, FLOATS) / 10


def pixels() -> np.ndarray:
    """Images for `pair`, by `id`."""
    return (np.arange(ROWS * 6) % 251).astype(np.uint8).reshape(ROWS, 3, 2, 1)


def make(folder: Path) -> None:
    """Write the models. Takes seconds."""
    subprocess.run([sys.executable, "-m", "tests.spark.scoring_models", str(folder)], check=True, timeout=100)


def main(folder: Path) -> None:
    import keras

    from sparktrain.ml.inference.loaded_model import LoadedModel

    keras.utils.set_random_seed(7)
    x = keras.Input((FLOATS,), name="features")
    models = {"churn": keras.Model(x, keras.layers.Dense(1, activation="sigmoid")(keras.layers.Dense(8)(x)))}
    wide = keras.Input((FLOATS,), name="features")
    models["wide"] = keras.Model(wide, keras.layers.Dense(1)(keras.layers.Dense(700)(keras.layers.Dense(700)(wide))))
    image, age = keras.Input((3, 2, 1), name="image"), keras.Input((1,), name="age")
    joined = keras.layers.Concatenate()([keras.layers.Flatten()(keras.layers.Rescaling(1 / 255)(image)), age])
    score = keras.layers.Dense(1, name="score")(joined)
    classes = keras.layers.Dense(3, activation="softmax", name="classes")(joined)
    models["pair"] = keras.Model({"image": image, "age": age}, {"score": score, "classes": classes})
    ages = np.arange(ROWS, dtype=np.float32).reshape(-1, 1)
    both = models["pair"]({"image": pixels().astype(np.float32), "age": ages})
    expected = {name: models[name](features().astype(np.float32)).numpy()[:, 0] for name in ("churn", "wide")}
    np.savez(folder / "expected.npz", score=both["score"][:, 0], classes=both["classes"], **expected)
    signatures = {}
    for name, model in models.items():
        model.save(folder / f"{name}.keras")
        signatures[name] = LoadedModel(folder / f"{name}.keras").signature().encoded().decode()
    (folder / "signatures.json").write_bytes(msgspec.json.encode(signatures))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
