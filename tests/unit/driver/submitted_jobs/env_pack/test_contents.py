"""The files of a pack are known by their content, before they are packed and however they came."""

import base64
import hashlib
import os
import py_compile
import tarfile
from collections.abc import Mapping
from importlib.metadata import Distribution
from pathlib import Path

import pytest

from sparktrain.driver.submitted_jobs.env_pack import pack_archive
from sparktrain.driver.submitted_jobs.env_pack.contents import (
    Contents,
    PackEntry,
    bytecode,
    contents,
    data_entry,
    file_entry,
    files_of,
    link_entry,
    tree,
)
from sparktrain.errors import SpecError
from sparktrain.store.localfs import LocalStore

SITE = "lib/python3/site-packages"


def wheel(folder: Path, files: Mapping[str, str], **more: str) -> Distribution:
    """A package as pip leaves it."""
    home = folder / "tool-1.0.dist-info"
    home.mkdir(parents=True)
    (home / "METADATA").write_text("Metadata-Version: 2.1\nName: tool\nVersion: 1.0\n")
    lines = ["tool-1.0.dist-info/RECORD,,", "../../../bin/tool,,"]
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(text)}")
    for name, text in more.items():
        (home / f"{name}.json").write_text(text)
    (home / "RECORD").write_text("\n".join(lines))
    for path in folder.rglob("*.py"):
        os.utime(path, (1_600_000_000, 1_600_000_000))  # older than the list of the wheel
    return Distribution.at(home)


def packed(*entries: PackEntry) -> Contents:
    return contents([entries], [])


def test_the_name_changes_with_content_name_and_mode_alone() -> None:
    one = packed(data_entry("a", "1"), data_entry("b", "2"))
    assert one.archive == packed(data_entry("b", "2"), data_entry("a", "1")).archive
    others = [
        packed(data_entry("a", "1"), data_entry("b", "3")),
        packed(data_entry("a", "1"), data_entry("c", "2")),
        packed(data_entry("a", "1"), data_entry("b", "2", executable=True)),
        packed(data_entry("a", "1"), link_entry("b", "a")),
    ]
    assert len({one.archive, *(each.archive for each in others)}) == 5
    assert one.archive.endswith(".tar.gz")


def test_files_of_a_wheel_are_those_beside_its_metadata(tmp_path: Path) -> None:
    package = wheel(tmp_path, {"tool/__init__.py": "x = 1\n", "tool/data.txt": "d"})
    names = [entry.name for entry in files_of(package, SITE)]
    assert names == [f"{SITE}/tool-1.0.dist-info/RECORD", f"{SITE}/tool/__init__.py", f"{SITE}/tool/data.txt"]


def test_headers_of_tensorflow_stay_behind_and_those_of_others_do_not(tmp_path: Path) -> None:
    headers = ["tensorflow/include/a.h", "tensorflow/a.h", "tool/include/a.h"]
    for name in headers:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    found = {entry.name for entry in files_of(wheel(tmp_path, dict.fromkeys(headers, "")), SITE)}
    assert {f"{SITE}/{name}" for name in headers} & found == {f"{SITE}/tensorflow/a.h", f"{SITE}/tool/include/a.h"}


def test_an_untouched_file_of_a_wheel_has_the_digest_of_its_list_and_a_changed_one_its_own(tmp_path: Path) -> None:
    package = wheel(tmp_path, {"tool/__init__.py": "x = 1\n"})
    source = tmp_path / "tool" / "__init__.py"
    [before] = [each for each in files_of(package, SITE) if each.name.endswith("__init__.py")]
    assert before.identity == hashlib.sha256(b"x = 1\n").hexdigest()
    source.write_text("x = 2\n")  # as long as before
    os.utime(source, (4_000_000_000, 4_000_000_000))
    [after] = [each for each in files_of(package, SITE) if each.name.endswith("__init__.py")]
    assert after.identity == hashlib.sha256(b"x = 2\n").hexdigest()


def test_a_package_whose_files_are_elsewhere_is_refused(tmp_path: Path) -> None:
    package = wheel(tmp_path, {}, direct_url='{"dir_info": {"editable": true}, "url": "file:///x"}')
    with pytest.raises(SpecError, match="package tool cannot be packed, it is installed as editable"):
        list(files_of(package, SITE))


def test_a_package_without_a_list_is_refused(tmp_path: Path) -> None:
    package = wheel(tmp_path, {})
    (tmp_path / "tool-1.0.dist-info" / "RECORD").unlink()
    with pytest.raises(SpecError, match="package tool cannot be packed, it has no list of its files"):
        list(files_of(package, SITE))


def test_stale_bytecode_stays_behind(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("value = 42\n")
    py_compile.compile(str(source))
    source.write_text("value = 142\n")
    assert bytecode(source) is None


def test_an_archive_has_the_same_bytes_again_and_is_uploaded_once(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "inner" / "a.py").write_text("x = 1\n")
    py_compile.compile(str(source / "inner" / "a.py"))
    pack = contents(
        [tree(source, "lib"), [link_entry("bin/python", "python3"), data_entry("bin/python3", "#!", executable=True)]],
        [],
    )
    progress: list[tuple[int, int]] = []
    stores = [LocalStore(tmp_path / "one"), LocalStore(tmp_path / "two")]
    for store in stores:
        assert pack_archive.publish(store, pack, lambda size, total: progress.append((size, total)))
        assert not pack_archive.publish(store, pack, lambda size, total: pytest.fail("nothing is packed again"))
    assert stores[0].read(pack.archive) == stores[1].read(pack.archive)
    assert progress[-1] == (pack.size, pack.size) == (8, 8)
    with tarfile.open(stores[0].where(pack.archive)) as found:
        members = {each.name: each for each in found.getmembers()}
    assert set(members) == {"bin/python", "bin/python3", "lib/inner/a.py", *(n for n in members if "__pycache__" in n)}
    assert len(members) == 4
    assert members["bin/python"].linkname == "python3"
    assert members["bin/python3"].mode == 0o755
    assert {each.mtime for each in members.values()} == {315532800}


def test_a_pack_that_cannot_be_read_is_not_published(tmp_path: Path) -> None:
    gone = file_entry("a", Path(__file__))
    store = LocalStore(tmp_path / "store")
    with pytest.raises(FileNotFoundError):
        pack_archive.publish(
            store,
            Contents((PackEntry(name="a", identity=gone.identity, source=tmp_path / "gone"),), ()),
            lambda size, total: None,
        )
    assert store.list() == []
