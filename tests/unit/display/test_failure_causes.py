"""Tracebacks that a terminal has room for."""

from sparktrain.display.failure_causes import shortened

USERS = ['  File "train.py", line 9, in train', "    model.fit(x)", "          ^^^"]
KERAS = ['  File "/venv/lib/python3.11/site-packages/keras/trainer.py", line 4, in fit', "    self.step()"]
LAST = ['  File "/venv/lib/python3.11/site-packages/keras/ops.py", line 7, in step', "    raise ValueError()"]
HEAD, END = "Traceback (most recent call last):", "ValueError: shapes"


def test_a_short_one_is_as_it_is() -> None:
    lines = [HEAD, *KERAS, *USERS, END]
    assert shortened("\n".join(lines) + "\n") == lines


def test_frames_of_libraries_go_first_but_for_the_last() -> None:
    lines = [HEAD, *USERS, *KERAS * 6, *LAST, END]
    assert shortened("\n".join(lines)) == [HEAD, *USERS, "  ... 6 frames of libraries", *LAST, END]


def test_what_is_still_too_long_keeps_its_end_and_a_cause_stays() -> None:
    lines = [HEAD, *KERAS * 9, "KeyError: 'a'", "", "The above was the cause:", "", HEAD, *USERS, *LAST, END]
    kept = shortened("\n".join(lines))
    assert kept[-8:] == ["", HEAD, *USERS, *LAST, END]
    assert len(kept) == 12
    assert "KeyError: 'a'" in kept
