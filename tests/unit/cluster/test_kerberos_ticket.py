"""A machine without Kerberos has no tickets; tests/hadoop/test_kerberos.py uses one that has it."""

from functools import partial

from sparktrain.cluster.kerberos_ticket import ticket
from sparktrain.cluster.token_renewer import has_ticket


def test_without_the_library_there_is_no_ticket() -> None:
    without_library = partial(ticket, "no-such-library.so")
    assert without_library() is None
    assert not has_ticket(without_library)
