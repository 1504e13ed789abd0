"""Tracebacks of executors with the names and lines that the user knows."""

import io
import linecache
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sparktrain.state.outcome import Failure
from sparktrain.training import failure
from sparktrain.training.source_homes import Homes, find
from sparktrain.usercode.fingerprint import fingerprint
from sparktrain.usercode.serialize import pack
from sparktrain.usercode.target import Target, resolve
from sparktrain.usercode.traceback_sources import with_origins


@pytest.fixture(autouse=True)
def _lines() -> Iterator[None]:
    before = dict(linecache.cache)
    yield
    linecache.cache.clear()
    linecache.cache.update(before)


def failed(function: Callable[..., Any], homes: Homes) -> Failure:
    try:
        function()
    except Exception as error:
        return failure.of_exception(error, homes=homes)
    raise AssertionError("it did not raise")


def unpacked(archive: bytes, folder: Path) -> Homes:
    with zipfile.ZipFile(io.BytesIO(archive)) as modules:
        modules.extractall(folder)
    return find(("/no/such/folder", str(folder)))


def compiled(source: str, file: str) -> Callable[..., Any]:
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, file, "exec"), space)
    return space["train"]  # type: ignore[no-any-return]


def test_an_unpacked_module_is_called_as_its_user_calls_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user, agent = tmp_path / "user", tmp_path / "agent"
    (user / "code").mkdir(parents=True)
    source = "def train():\n    raise ValueError('here')\n"
    (user / "code" / "homes_train.py").write_text(source)
    monkeypatch.chdir(user)
    monkeypatch.syspath_prepend(str(user / "code"))
    homes = unpacked(pack(resolve("code/homes_train.py:train")).archive, agent)
    shown = failed(compiled(source, str(agent / "homes_train.py")), homes).traceback
    assert "  File \"code/homes_train.py\", line 2, in train\n    raise ValueError('here')\n" in shown
    assert str(tmp_path) not in shown


def test_what_lies_elsewhere_keeps_its_whole_path(tmp_path: Path) -> None:
    homes = Homes("/agent/modules")
    assert homes.of("/agent/modules/other.py") == "/agent/modules/other.py"
    assert homes.of("/agent/modules2/x.py") == "/agent/modules2/x.py"


class Shell:
    """As IPython's, which compiles cells under made-up names."""

    def __init__(self, cells: dict[str, int]) -> None:
        self.cells = cells
        self.compile = self

    def get_ipython(self) -> "Shell":
        return self

    def format_code_name(self, name: str) -> tuple[str, str] | None:
        return ("Cell", f"In[{self.cells[name]}]") if name in self.cells else None


def test_a_cell_of_a_notebook_has_its_number_and_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, source = "/tmp/ipykernel_1/77.py", "def train():\n    raise KeyError('in a cell')\n"
    monkeypatch.setitem(sys.modules, "IPython", Shell({name: 3, "/tmp/ipykernel_1/78.py": 4}))
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    linecache.cache["/tmp/ipykernel_1/78.py"] = (8, None, ["secret\n"], "/tmp/ipykernel_1/78.py")
    function = compiled(source, name)
    archive = pack(function).archive
    linecache.cache.clear()
    homes = unpacked(archive, tmp_path / "agent")
    assert list(homes.origins.sources) == [name], "only cells that the function is from are sent"
    shown = failed(function, homes).traceback
    assert "  File \"Cell In[3]\", line 2, in train\n    raise KeyError('in a cell')\n" in shown


def test_causes_and_groups_have_the_names_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = (
        "def train():\n    try:\n        1 / 0\n    except ZeroDivisionError as error:\n"
        "        raise ExceptionGroup('two', [error]) from error\n"
    )
    homes = unpacked(pack(compiled(source, "<cell>")).archive, tmp_path / "agent")
    shown = failed(compiled(source, f"{tmp_path}/script.py"), homes).traceback
    assert shown.count('File "script.py"') == 3
    assert str(tmp_path) not in shown


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("data/there.csv", " (a trial works in a folder of its own: write '{folder}/data/there.csv')"),
        ("./gone.csv", "write an absolute path that executors can read, as '{folder}/gone.csv' would be)"),
        ("/gone.csv", "'/gone.csv'"),
    ],
)
def test_a_relative_path_gets_a_hint(name: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "there.csv").touch()
    monkeypatch.chdir(tmp_path)
    source = f"def train():\n    open({name!r})\n"
    homes = unpacked(pack(compiled(source, "<cell>")).archive, tmp_path / "agent")
    monkeypatch.chdir("/")
    assert failed(compiled(source, "<cell>"), homes).summary.endswith(hint.format(folder=tmp_path))


def test_where_the_code_lies_is_no_part_of_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    function = compiled("def train():\n    return 1\n", "<cell>")
    prints = []
    for folder in (tmp_path, Path("/")):
        monkeypatch.chdir(folder)
        prints.append(fingerprint(Target.of(function), pack(function)))
    assert prints[0] == prints[1]


def test_origins_that_cannot_be_read_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "sparktrain-origins.json").write_text("[1]")
    assert find((str(tmp_path),)) == Homes()


def test_sources_have_a_limit_and_a_deleted_folder_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {f"/tmp/ipykernel_1/{number}.py": number for number in range(3)}
    monkeypatch.setitem(sys.modules, "IPython", Shell(names))
    for name in names:
        linecache.cache[name] = (9, None, ["x" * 400_000], name)
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    homes = unpacked(with_origins(b"", "".join(names).encode(), None), tmp_path / "agent")
    assert len(homes.origins.sources) == 2
    assert homes.origins.folder == ""
    assert homes.hint(FileNotFoundError(2, "No such file", "data.csv")) == ""
