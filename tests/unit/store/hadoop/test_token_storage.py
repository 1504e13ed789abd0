"""Token files of several runs become one, as Hadoop itself reads and writes it."""

import pytest

from sparktrain.store.hadoop.token_storage import MAGIC, merged

# Written by `Credentials.writeTokenStorageToStream` of Hadoop 3.4, with an identifier of 200 bytes and a password of
# 130, both longer than one byte can name.
FIRST = bytes.fromhex(
    "484454530002036b6d73026b318f82" + "78" * 130 + "066b6d732d6474036b6d73096e6e2d613a383032308fc8"
    + bytes(range(200)).hex()
    + "0470772d6115484446535f44454c45474154494f4e5f544f4b454e096e6e2d613a3830323001036b657906736563726574"
)  # fmt: skip
SECOND = bytes.fromhex(
    "484454530002036b6d73026b320179066b6d732d6474036b6d73096e6e2d623a38303230036964620470772d6215484446535f44454c"
    "45474154494f4e5f544f4b454e096e6e2d623a3830323000"
)
OTHER_FORMAT = MAGIC + b"\x01protobuf"


def test_two_files_have_the_tokens_of_both() -> None:
    both = merged([FIRST, SECOND])
    # Hadoop reads it: three tokens, that of `kms` from the second file, and one secret key.
    assert both.startswith(b"HDTS\x00\x03")
    for part in (b"nn-a:8020", b"pw-a", b"nn-b:8020", b"pw-b", b"k2", b"\x03key\x06secret"):
        assert part in both
    assert b"k1" not in both
    assert len(merged([SECOND, FIRST])) == len(both) + 130 + 1 - 1, "the later one of two tokens by one name counts"


@pytest.mark.parametrize("content", [FIRST, SECOND])
def test_what_hadoop_has_written_is_written_again_to_the_byte(content: bytes) -> None:
    assert merged([content]) == content
    assert merged([content, content]) == content


@pytest.mark.parametrize(
    "other",
    [OTHER_FORMAT, b"", b"HDTS\x00", FIRST[:-1], b"HDTS\x00\x01\x01a\x01i\x01p\x01k\x7fs", b"HDTS\x00\x80"],
    ids=["protobuf", "empty", "no number", "cut off", "too long a block", "a negative number"],
)
def test_the_last_file_stands_alone_if_one_cannot_be_read(other: bytes) -> None:
    assert merged([other, SECOND]) == SECOND
    assert merged([SECOND, other]) == other
