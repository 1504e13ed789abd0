"""A model of any library is kept in its own format, and comes back from the run directory as that library loads it."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from sparktrain.errors import RunDirectoryError, SpecError
from sparktrain.rundir.layout import EXPORTED, MemberLayout
from sparktrain.runs import exported_model
from sparktrain.runs.exported_model import StoredModel, find_model, load_other, local_copy
from sparktrain.store.localfs import LocalStore
from sparktrain.training import export as exporting
from sparktrain.training.export import description_digest, export

X = np.random.default_rng(0).normal(size=(60, 3))
LABELS = (X[:, 0] > 0).astype(int)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of a member, as it is in the run directory, too."""
    return tmp_path / "runs" / "member"


def stored(home: Path) -> StoredModel:
    model = find_model(LocalStore(home.parent), MemberLayout(home.name))
    assert model is not None
    return model


def loaded(home: Path, record: str = "") -> Any:
    store = LocalStore(home.parent)
    model = find_model(store, MemberLayout(home.name), record)
    assert model is not None
    with local_copy(store, model) as copy:
        return load_other(copy, model, {})


def without_skops(monkeypatch: pytest.MonkeyPatch) -> None:
    found = exporting.find_spec
    monkeypatch.setattr(exporting, "find_spec", lambda name: None if name == "skops" else found(name))


def test_an_estimator_of_scikit_learn_by_joblib(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    without_skops(monkeypatch)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, LABELS)
    export(model, home, 0)

    assert stored(home).path.endswith(f"{EXPORTED}/model.joblib")
    assert loaded(home).predict_proba(X).tolist() == model.predict_proba(X).tolist()


def test_a_function_decides_which_types_skops_may_load(home: Path) -> None:
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier().fit(X, LABELS)
    exporting.export_estimator(tree, home)
    asked: list[str] = []
    with local_copy(LocalStore(home.parent), stored(home)) as copy:
        with pytest.raises(TypeError, match="Untrusted types"):
            load_other(copy, stored(home), {"trusted": lambda name: asked.append(name)})
        model = load_other(copy, stored(home), {"trusted": lambda name: name.startswith("sklearn.")})
    assert asked == ["sklearn.tree._tree.Tree"]
    assert model.predict(X).tolist() == tree.predict(X).tolist()


def test_what_the_run_has_a_record_of_is_trusted_and_nothing_else(home: Path) -> None:
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(random_state=0).fit(X, LABELS)
    export(tree, home, 0)
    record = description_digest(home)
    assert loaded(home, record).predict(X).tolist() == tree.predict(X).tolist()
    with pytest.raises(SpecError, match=r"Tree, which neither skops trusts nor .* load_model\(trusted=\['sklearn.tree"):
        loaded(home)

    described = home / EXPORTED / "sparktrain-model.json"
    content = described.read_bytes()
    described.write_bytes(content.replace(b"sklearn.tree", b"builtins.tree"))
    with pytest.raises(RunDirectoryError, match=r"json is not what the trial has exported: its SHA-256 differs"):
        loaded(home, record)
    described.write_bytes(content)
    (home / "model.keras").write_text("another model")
    assert loaded(home, record).get_depth() == tree.get_depth()
    model = home / EXPORTED / "model.skops"
    model.write_bytes(model.read_bytes() + b" ")
    with pytest.raises(RunDirectoryError, match=r"skops is not what the trial has exported"):
        loaded(home, record)
    for gone in (model, described):
        gone.unlink()
        with pytest.raises(RunDirectoryError, match=rf"{home}.*{gone.name} is gone, which the trial has exported"):
            loaded(home, record)


def test_a_model_with_code_of_the_script_is_a_pickle_with_that_code(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import skops.io
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    class Doubled(TransformerMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
        __module__ = "__main__"

        def fit(self, rows: Any, labels: Any = None) -> "Doubled":
            return self

        def transform(self, rows: Any) -> Any:
            return rows * 2

    older = home.parent.parent / "older.skops"  # an older version stored names of the script, without their code
    skops.io.dump(Doubled(), older)
    with pytest.raises(SpecError, match=r"Doubled'\]\) in a program that defines those of __main__, or train again"):
        load_other(older, StoredModel("skops", str(older)), {})
    # A class of a script is in `__main__`, where both the member and the driver find it.
    monkeypatch.setattr(sys.modules["__main__"], "Doubled", Doubled, raising=False)
    Doubled.__qualname__ = "Doubled"
    for first in (FunctionTransformer(lambda rows: rows * 2), Doubled()):
        model = make_pipeline(first, LinearRegression()).fit(X, LABELS)
        export(model, home, 0)
        assert stored(home).kind == "joblib"
        record = description_digest(home)
        assert loaded(home, record).predict(X).tolist() == model.predict(X).tolist()
        pickled = home / EXPORTED / "model.joblib"
        pickled.write_bytes(pickled.read_bytes() + b" ")
        with pytest.raises(RunDirectoryError, match="is not what the trial has exported"):
            loaded(home, record)


def test_an_estimator_that_cannot_be_stored_is_refused_with_the_reason(home: Path) -> None:
    from sklearn.linear_model import LinearRegression

    model = LinearRegression().fit(X, LABELS)
    model.log_ = (line for line in "ab")
    words = r"LinearRegression cannot be stored and loaded again \(TypeError: .*generator"
    with pytest.raises(SpecError, match=words):
        export(model, home, 0)
    assert find_model(LocalStore(home.parent), MemberLayout(home.name)) is None
    assert description_digest(home) == ""


def test_an_estimator_of_lightgbm_stays_one_where_it_was_searched(home: Path) -> None:
    from lightgbm import LGBMClassifier

    model = LGBMClassifier(n_estimators=2, verbose=-1).fit(X, LABELS)
    exporting.export_estimator(model, home)
    with local_copy(LocalStore(home.parent), stored(home)) as copy:
        options = {"trusted": lambda name: True} if stored(home).kind == "skops" else {}
        again = load_other(copy, stored(home), options)
    assert isinstance(again, LGBMClassifier)
    assert again.predict(X).tolist() == model.predict(X).tolist()


def test_an_estimator_by_skops_where_it_is_installed_and_knows_the_types(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sklearn.linear_model import LinearRegression

    class Skops(SimpleNamespace):
        """Stands in for `skops.io`, which writes some types alone."""

        def dump(self, model: Any, path: Path) -> None:
            path.write_text("half")
            if model.fit_intercept is False:
                raise TypeError("an unsupported type")
            path.write_text(repr(model))

        def get_untrusted_types(self, *, file: object) -> list[str]:
            return []

        def load(self, path: str, trusted: list[str]) -> str:
            return Path(path).read_text()

    for module in (exporting, exported_model):
        monkeypatch.setattr(module, "find_spec", lambda name: ModuleSpec(name, None))
    monkeypatch.setitem(sys.modules, "skops", SimpleNamespace(io=Skops()))
    monkeypatch.setitem(sys.modules, "skops.io", Skops())
    export(LinearRegression().fit(X, LABELS), home, 0)
    assert (stored(home).kind, loaded(home)) == ("skops", "LinearRegression()")

    export(LinearRegression(fit_intercept=False).fit(X, LABELS), home, 0)
    assert [path.name for path in (home / EXPORTED).iterdir() if path.suffix != ".json"] == ["model.joblib"]


@pytest.mark.long
def test_xgboost(home: Path) -> None:
    import xgboost

    class Mine(xgboost.XGBClassifier):
        pass

    for model in (xgboost.XGBRegressor(n_estimators=3), Mine(n_estimators=3)):
        model.fit(X, LABELS)
        export(model, home, 0)
        assert stored(home).path.endswith("/model.ubj")
        found = loaded(home)
        assert type(found) is type(model).__mro__[isinstance(model, Mine)]
        assert found.predict(X).tolist() == model.predict(X).tolist()
    matrix = xgboost.DMatrix(X, LABELS)
    booster = xgboost.train({"max_depth": 2}, matrix, 3)
    export(booster, home, 0)
    assert loaded(home).predict(matrix).tolist() == booster.predict(matrix).tolist()


def test_lightgbm(home: Path) -> None:
    import lightgbm

    quiet = {"verbose": -1, "min_data_in_leaf": 1}
    estimator = lightgbm.LGBMRegressor(n_estimators=3, **quiet).fit(X, LABELS)
    export(estimator, home, 0)
    assert stored(home) == StoredModel(
        "lightgbm", f"member/{EXPORTED}/model.txt", "LGBMRegressor", lightgbm.__version__
    )
    assert np.allclose(loaded(home).predict(X), estimator.predict(X))
    booster = lightgbm.train(quiet, lightgbm.Dataset(X, LABELS), 3)
    export(booster, home, 0)
    assert np.allclose(loaded(home).predict(X), booster.predict(X))


def test_a_file_and_a_folder_of_the_user(home: Path, tmp_path: Path) -> None:
    weights = tmp_path / "weights.pt"
    weights.write_bytes(b"weights")
    export(weights, home, 0)
    assert loaded(home).read_bytes() == b"weights"

    folder = tmp_path / "saved model"
    (folder / "variables").mkdir(parents=True)
    (folder / "variables" / "a").write_text("1")
    (folder / "saved_model.pb").write_text("2")
    export(str(folder), home, 0)
    copy = loaded(home)
    assert copy.name == "saved model"
    assert (copy / "variables" / "a").read_text() + (copy / "saved_model.pb").read_text() == "12"
    assert not (home / EXPORTED / "weights.pt").exists(), "the newest export counts"


def test_a_keras_file_is_the_keras_model(home: Path, tmp_path: Path) -> None:
    export(_file(tmp_path / "any.txt"), home, 0)
    export(_file(tmp_path / "mine.keras"), home, 0)
    assert stored(home) == StoredModel("keras", "member/model.keras")
    assert not (home / EXPORTED).exists()
    export(_file(tmp_path / "any.txt"), home, 0)
    assert stored(home).kind == "path"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            object(),
            r"given an object of type builtins.object; pass a Keras model, a module or a program of PyTorch, an",
        ),
        (None, "given an object of type builtins.NoneType"),
        ({"weights": [1]}, "given an object of type builtins.dict"),
        ("missing.pt", "missing.pt'.: there is no such file or folder; pass the path of one, or a Keras model"),
    ],
)
def test_any_other_object_is_refused_with_what_can_be_exported(home: Path, model: Any, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        export(model, home, 0)
    export(model, home, 1)
    assert find_model(LocalStore(home.parent), MemberLayout(home.name)) is None


def test_a_folder_around_that_of_the_trial_is_refused(home: Path) -> None:
    home.mkdir(parents=True)
    with pytest.raises(SpecError, match="this folder contains the folder of the trial itself"):
        export(home.parent, home, 0)


def test_an_export_that_fails_leaves_the_one_before(home: Path, tmp_path: Path) -> None:
    class Broken:
        __module__ = "xgboost.core"

        def save_model(self, path: str) -> None:
            Path(path).write_text("half")
            raise OSError("the disk is full")

    export(_file(tmp_path / "any.txt"), home, 0)
    with pytest.raises(OSError, match="the disk is full"):
        export(Broken(), home, 0)
    assert loaded(home).name == "any.txt"
    assert [path.name for path in home.iterdir()] == ["files"]


def test_a_library_that_is_not_installed_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sklearn.linear_model import LinearRegression

    without_skops(monkeypatch)
    export(LinearRegression().fit(X, LABELS), home, 0)
    monkeypatch.setattr(exported_model, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match=r"\(LinearRegression\) needs the package joblib, .* install it there"):
        loaded(home)


def _file(path: Path) -> Path:
    path.write_text("a model")
    return path
