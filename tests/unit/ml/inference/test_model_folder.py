"""The files of models on a host: made once, kept while they are held, deleted when another model comes."""

import hashlib
import os
import shutil
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sparktrain.errors import DataError, InfraError, MissingFileError, SpecError
from sparktrain.ml.inference import model_folder
from sparktrain.ml.inference.model_file import FETCHED, ModelFile, model_at
from sparktrain.ml.inference.model_folder import ModelFolder, arriving, models_folder
from sparktrain.ml.inference.saved_model_files import saved_model_at
from tests.unit.datasets.data_files import flipped


class Paused:
    """A clock with pauses that take no time."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def pause(self, seconds: float) -> None:
        self.time += seconds


def writes(text: str, calls: list[str]) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        calls.append(text)
        path.write_text(text)

    return make


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(model_folder.tempfile, "gettempdir", lambda: str(tmp_path))
    return models_folder()


def test_processes_that_need_a_file_at_once_make_it_once(root: Path) -> None:
    calls: list[str] = []
    inside, go_on = threading.Event(), threading.Event()

    def slow(path: Path) -> None:
        inside.set()
        assert go_on.wait(10)
        writes("made", calls)(path)

    folders = [ModelFolder.hold("d") for _ in range(4)]
    threads = [threading.Thread(target=each.file, args=("model", slow)) for each in folders]
    threads[0].start()
    assert inside.wait(10)
    for each in threads[1:]:
        each.start()
    go_on.set()
    for each in threads:
        each.join(10)
    assert calls == ["made"]
    assert (root / "d" / "model").read_text() == "made"


def test_a_maker_that_fails_leaves_nothing_and_the_next_one_makes_the_file(root: Path) -> None:
    folder = ModelFolder.hold("d")

    def fail(path: Path) -> None:
        path.write_text("half")
        raise OSError("the store is gone")

    with pytest.raises(OSError, match="the store is gone"):
        folder.file("model", fail)
    assert sorted(each.name for each in folder.path.iterdir()) == ["held", "model.lock"]
    assert folder.file("model", writes("whole", [])).read_text() == "whole"


def test_a_process_does_not_wait_for_ever(root: Path) -> None:
    clock = Paused()
    folder, other = ModelFolder.hold("d"), ModelFolder.hold("d", clock=clock)

    def make(path: Path) -> None:
        with pytest.raises(InfraError, match=r"model.lock is locked for 900 s by a process that reads the model"):
            other.file("model", writes("never", []))
        path.write_text("made")

    folder.file("model", make)
    assert clock.time > 800


def test_another_model_evicts_those_that_no_process_holds(root: Path) -> None:
    free, held, other = (letter * 64 for letter in "abc")
    free, held = ModelFolder.hold(free), ModelFolder.hold(held)
    free.file("model", writes("free", []))
    held.file("model", writes("held", []))
    free.release()
    free.release()
    new = ModelFolder.hold(other)
    assert sorted(root.iterdir()) == [held.path, new.path]
    assert (held.path / "model").read_text() == "held"
    new.release()
    assert ModelFolder.hold(other).path.exists(), "it survives the processes that used it"


def test_what_killed_processes_have_left_is_deleted(root: Path) -> None:
    gone = root / f".gone-{0:032x}"
    gone.mkdir()
    (gone / "model").write_text("x")
    (root / f".part-{0:032x}").write_text("x")
    with arriving() as path:
        ModelFolder.hold("d").release()
        assert path.exists(), "its process lives"
    assert [each.name for each in root.iterdir()] == ["d"]


def test_what_only_looks_like_a_model_stays(root: Path, tmp_path: Path) -> None:
    model = tmp_path / "kept"
    for folder in (model, root / "thesis", root / ".gone-fishing"):
        folder.mkdir()
        (folder / "held").touch()
        (folder / "model").touch()
    (root / ("e" * 64)).symlink_to(model)
    (root / f".gone-{1:032x}").symlink_to(model)
    (root / ("f" * 64)).mkdir()
    (root / ("f" * 64) / "held").symlink_to(model / "held")
    (root / ".part-time").touch()
    before = sorted([*root.rglob("*"), *model.rglob("*")])
    ModelFolder.hold("d" * 64).release()
    shutil.rmtree(root / ("d" * 64))
    assert sorted([*root.rglob("*"), *model.rglob("*")]) == before


def test_the_folder_is_the_users_alone(root: Path, tmp_path: Path) -> None:
    assert root == tmp_path / f"sparktrain-models-{os.getuid()}"
    assert root.stat().st_mode & 0o777 == 0o700
    root.chmod(0o755)
    assert models_folder().stat().st_mode & 0o777 == 0o700
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / root.name).symlink_to(root)
    private = models_folder(str(elsewhere))
    assert private.name.startswith(f"{root.name}-")
    assert models_folder(str(elsewhere)) == private


def archive(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as made:
        for name in names:
            made.writestr(name, "{}")
    return path


def test_a_model_is_fetched_once_and_known_by_its_digest(root: Path, tmp_path: Path) -> None:
    path = archive(tmp_path / "m.keras", "config.json", "model.weights.h5", "metadata.json")
    content = path.read_bytes()
    file, folder = model_at(str(path))
    assert file == ModelFile(str(path), len(content), hashlib.sha256(content).hexdigest())
    path.unlink()
    other = ModelFolder.hold(file.sha256)
    assert file.fetch(other).read_bytes() == content
    assert (folder.path, other.path.name, FETCHED) == (other.path, file.sha256, "model.keras")


def test_a_model_that_has_changed_is_refused_where_the_old_one_is_expected(root: Path, tmp_path: Path) -> None:
    path = archive(tmp_path / "m.keras", "config.json", "model.weights.h5")
    file, folder = model_at(str(path))
    (folder.path / FETCHED).unlink()
    archive(path, "config.json", "model.weights.h5", "more")
    with pytest.raises(DataError, match=r"m.keras has changed since the call that predicts with it"):
        file.fetch(folder)
    assert not (folder.path / FETCHED).exists()


def test_a_file_of_a_model_that_has_changed_on_this_host_is_fetched_again(
    root: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = archive(tmp_path / "m.keras", "config.json", "model.weights.h5")
    file, folder = model_at(str(path))
    content = path.read_bytes()
    for read in (lambda: file.fetch(folder), lambda: model_at(str(path))[1].path / FETCHED):
        (folder.path / FETCHED).write_bytes(flipped(content, len(content) // 2))
        assert read().read_bytes() == content
    assert caplog.text.count("model.keras is corrupt: it is replaced") == 2


def test_a_saved_model_that_has_changed_on_this_host_is_fetched_again(root: Path, tmp_path: Path) -> None:
    source = tmp_path / "exported"
    (source / "variables").mkdir(parents=True)
    for name, content in (("saved_model.pb", b"graph"), ("variables/index", b"weights")):
        (source / name).write_bytes(content)
    files, _ = saved_model_at(str(source))
    folder = ModelFolder.hold(files.sha256)
    place = files.fetch(folder)
    (place / "variables/index").write_bytes(b"weightz")
    assert (files.fetch(folder) / "variables/index").read_bytes() == b"weights"
    (place / "saved_model.pb").unlink()
    assert (files.fetch(folder) / "saved_model.pb").read_bytes() == b"graph"


def test_what_is_no_model_is_refused(root: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.keras"
    text.write_text("weights")
    with pytest.raises(DataError, match=r"text.keras is no model of Keras 3 \(it has .* and is no zip archive\)"):
        model_at(str(text))
    with pytest.raises(DataError, match=r"\(it has no model.weights.h5\): save it with model.save\('name.keras'\)"):
        model_at(str(archive(tmp_path / "half.keras", "config.json")))
    with pytest.raises(MissingFileError, match=r"there is no model .*none.keras that host .* can read"):
        model_at(str(tmp_path / "none.keras"))
    with pytest.raises(SpecError, match=r"model \(old.h5\) must be a .keras file"):
        model_at("old.h5")
    assert [each.name for each in root.iterdir()] == []
