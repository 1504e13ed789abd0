"""What a person sees of two versions of the code."""

import zipfile
from io import BytesIO

import pytest

from sparktrain.protocol.messages import Code
from sparktrain.usercode.code_changes import differences


def code(**files: str) -> Code:
    archive = BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        for name, text in files.items():
            opened.writestr(f"{name}.py", text)
    return Code("0" * 64, b"function", archive=archive.getvalue())


@pytest.mark.parametrize(
    ("before", "after", "files", "lines"),
    [
        ({"a.py": "1"}, {"a.py": "2"}, ("x = 1\n", "x = 2\n"), ["a.py", "@@ -1 +1 @@", "-x = 1", "+x = 2"]),
        ({"a.py": "1"}, {}, ("x = 1\n", None), ["- a.py", "@@ -1 +0,0 @@", "-x = 1"]),
        ({}, {"a.py": "1"}, (None, "x = 1\n"), ["+ a.py", "@@ -0,0 +1 @@", "+x = 1"]),
        ({"a.py": "1"}, {}, ("x = 1\n", "x = 1\n"), ["- a.py"]),
        ({"function a:f": "1"}, {"function b:f": "2"}, (None, None), ["+ function b:f", "- function a:f"]),
        ({"function a:f": "1"}, {"function a:f": "2"}, (None, None),
         ["function a:f", "its text is the same, a value that it captures is not"]),
    ],
)  # fmt: skip
def test_a_part_that_one_side_has_alone_is_marked(
    before: dict[str, str], after: dict[str, str], files: tuple[str | None, str | None], lines: list[str]
) -> None:
    codes = [code(**({} if text is None else {"a": text})) for text in files]
    assert sorted(differences((before, after), ("", ""), (codes[0], codes[1]))) == sorted(lines)


def test_the_text_of_a_renamed_function_is_compared_once() -> None:
    texts = ("def f():\n    return 1", "def g():\n    return 1")
    lines = differences(({"function a:f": "1"}, {"function a:g": "2"}), texts, (code(), code()))
    assert lines == ["- function a:f", "+ function a:g", "@@ -1,2 +1,2 @@", "-def f():", "+def g():", "     return 1"]
