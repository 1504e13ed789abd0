"""The parts of a log that a browser gets: small ones, of whole lines and characters."""

import pytest

from sparktrain.views.page.page_app import LOG_BYTES, wanted_range, whole_text

SIZE = 100 * 2**20


@pytest.mark.parametrize(
    ("offset", "tail", "before", "expected"),
    [
        (0, 1000, None, (SIZE - 1000, SIZE)),
        (0, 1000, SIZE - 1000, (SIZE - 2000, SIZE - 1000)),
        (0, 1000, 300, (0, 300)),
        (0, 1000, 2 * SIZE, (SIZE - 1000, SIZE)),
        (0, SIZE, None, (SIZE - LOG_BYTES, SIZE)),
        (SIZE - 10, None, None, (SIZE - 10, SIZE)),
        (0, None, None, (0, LOG_BYTES)),
        (SIZE + 1, None, None, (0, LOG_BYTES)),  # of a newer generation
        (SIZE, None, None, (SIZE, SIZE)),
    ],
)
def test_a_part_is_never_large(offset: int, tail: int | None, before: int | None, expected: tuple[int, int]) -> None:
    assert wanted_range(SIZE, offset, tail, before) == expected


@pytest.mark.parametrize(
    ("piece", "from_middle", "expected"),
    [
        (b"lf of a line\nwhole\nhalf", True, (0, b"lf of a line\nwhole\nhalf")),
        (b"lf\nwhole\nhalf of a line", True, (3, b"whole\nhalf of a line")),
        (b"whole\n", False, (0, b"whole\n")),
        ("ü".encode()[1:] + b"x" * 9, True, (1, b"x" * 9)),
        (b"x" + "€".encode()[:2], False, (0, b"x")),
        (b"x" + "🙂".encode()[:3], False, (0, b"x")),
        ("x🙂".encode(), False, (0, "x🙂".encode())),
        (b"\xff\xfe", False, (0, b"\xff")),  # no text at all
        (b"", True, (0, b"")),
    ],
)
def test_a_part_has_whole_characters(piece: bytes, from_middle: bool, expected: tuple[int, bytes]) -> None:
    assert whole_text(piece, from_middle) == expected


def test_parts_of_any_size_make_the_whole_text() -> None:
    text = "über 🙂 €\n" * 40
    whole = text.encode()
    for size in range(1, 9):
        found, offset = b"", 0
        while offset < len(whole):
            _, part = whole_text(whole[offset : offset + size + 4], False)
            found += part
            offset += len(part)
        assert found == whole
