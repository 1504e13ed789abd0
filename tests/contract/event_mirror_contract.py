"""What a board shows of event files that grow, in any store: inherit `EventMirrorContract` and override `store`."""

from pathlib import Path

import pytest

from sparktrain.rundir.event_files import FLUSH_S, open_growing
from sparktrain.store.base import Store
from sparktrain.views.board.event_mirror import EventMirror
from tests.unit.clocks import InstantClock

FOLDER = "run/trials/0003/generation-1/rank-0"
NAME = "events.out.tfevents.1.host"
SIZE = 2**20
"""Bytes of one append, which HDFS has at once."""


class EventMirrorContract:
    @pytest.fixture
    def store(self) -> Store:
        """An empty store."""
        raise NotImplementedError

    def test_a_file_that_grows_is_copied_as_it_does(self, store: Store, tmp_path: Path) -> None:
        clock, mirror, copy = (
            InstantClock(),
            EventMirror(store, "run", tmp_path / "copy"),
            tmp_path / "copy/0003" / NAME,
        )
        stream, written = open_growing(store, f"{FOLDER}/files/{NAME}", clock), b""
        for number in range(3):
            news = bytes([number]) * SIZE
            stream.write(news)
            written += news
            clock.pause(FLUSH_S)
            assert mirror.round() == len(news)
            assert copy.read_bytes() == written
        assert mirror.round() == 0
        stream.write(b"last")
        stream.close()
        assert sum(mirror.round() for _ in range(4)) == len(b"last")
        assert copy.read_bytes() == written + b"last"
        assert store.list("run") == [f"{FOLDER}/files/{NAME}"], "its parts are gone"
        assert sum(mirror.round() for _ in range(20)) == 0

    def test_a_file_of_several_pieces_is_copied_whole(self, store: Store, tmp_path: Path) -> None:
        content = bytes(range(256)) * (5 * 2**12)
        new = store.create(f"{FOLDER}/files/plugins/profile/1/host.xplane.pb")
        new.write(content)
        new.publish()
        assert EventMirror(store, "run", tmp_path / "copy").round() == len(content)
        assert (tmp_path / "copy/0003/plugins/profile/1/host.xplane.pb").read_bytes() == content
