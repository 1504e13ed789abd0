"""What tasks find in the folder of a feed."""

from pathlib import Path

import pytest

from sparktrain.config.store_address import StoreAddress
from sparktrain.errors import ProtocolError
from sparktrain.protocol.feed_directory import newest_addresses, publish_addresses
from sparktrain.protocol.feed_messages import (
    FeedAddress,
    FeedAddresses,
    FeedDirectory,
)
from sparktrain.store.url import open_store


def at(generation: int, epoch: int = 1) -> FeedAddresses:
    return FeedAddresses(generation, epoch, (FeedAddress("10.0.0.7", 4000 + generation, f"server-{generation}"),))


def test_the_newest_generation_counts_and_the_end_is_final(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert newest_addresses(store, "feeds/input") is None
    for found in (at(2), at(10), at(9), at(10, 2)):
        publish_addresses(store, "feeds/input", found)
    assert newest_addresses(store, "feeds/input") == at(10, 2)
    ended = FeedAddresses(10, 2, ended="the cluster has been shut down")
    publish_addresses(store, "feeds/input", ended)
    publish_addresses(store, "feeds/input", at(11))
    assert newest_addresses(store, "feeds/input") == ended
    assert newest_addresses(store, "feeds/output") is None


def test_another_file_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put_if_absent("feeds/input/0000000001-0000000001", b"something else")
    with pytest.raises(ProtocolError):
        newest_addresses(store, "feeds/input")


def test_a_directory_does_not_show_the_settings_of_its_store() -> None:
    directory = FeedDirectory(StoreAddress("s3://bucket/run", {"secret": "hidden"}), "feeds/input")
    assert "hidden" not in repr(directory)
