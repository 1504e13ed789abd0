"""A machine without Kerberos has no tickets. One with it: tests/hadoop/test_kerberos.py."""

import pytest

from sparktrain.cluster import kerberos_ticket
from sparktrain.cluster.token_renewer import has_ticket


def test_without_the_library_there_is_no_ticket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kerberos_ticket, "_LIBRARY", "libgssapi_krb5.so.of-nobody")
    assert kerberos_ticket.ticket() is None
    assert not has_ticket(kerberos_ticket.ticket)
