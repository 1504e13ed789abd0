"""Where tasks find the members that a feed has now: files in a folder of a store, one for each generation of a gang."""

from sparktrain.protocol.codec import decode, encode
from sparktrain.protocol.feed_messages import FeedAddresses
from sparktrain.store.base import Store

_ENDED = "ended"


def publish_addresses(store: Store, folder: str, addresses: FeedAddresses) -> None:
    """Publish the addresses of a generation, or that the feed has ended. The driver alone calls it.

    Nothing is overwritten: what the folder has already, stays. Blocks on the store. Raises OSError when it fails.
    """
    name = _ENDED if addresses.ended else f"{addresses.generation:010d}-{addresses.epoch:010d}"
    store.put_if_absent(f"{folder}/{name}", encode(addresses))


def newest_addresses(store: Store, folder: str) -> FeedAddresses | None:
    """What was published last; None before the first. The end of a feed is the last, whatever follows it.

    Blocks on the store. Raises OSError when it fails, ProtocolError for a file that the driver has not written.
    """
    names = [name for name in store.entries(folder) if not name.endswith("/")]
    if not names:
        return None
    record: FeedAddresses = decode(store.read(f"{folder}/{max(names)}"), FeedAddresses)  # "ended" is after all digits
    return record
