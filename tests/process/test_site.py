"""The build of the site."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_make_docs_fails_for_an_anchor_that_is_missing(tmp_path: Path) -> None:
    recipe = re.search(r"^docs:.*\n.*mkdocs build(.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Page\n\n[More](#missing)\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: site\nvalidation: {links: {anchors: warn}}\n")
    build = [sys.executable, "-W", "ignore", "-m", "mkdocs", "build", *shlex.split(recipe[1])]
    ended = subprocess.run(build, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert ended.returncode == 1, ended.stderr
    assert "'#missing'" in ended.stderr
