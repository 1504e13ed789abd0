"""What is taken of the tokens that an application has, and how long they last. The JVM is simulated."""

from types import SimpleNamespace
from typing import Any

import pytest

from sparktrain.cluster.delegation_tokens import Fetched, fetch
from sparktrain.errors import StoreError

URL = "hdfs://namenode.example:8020/runs"
SERVICE = "10.0.0.7:8020"
NOW_S = 5_000.0
"""By the clock of the NameNode, which is years behind."""


class Named:
    def __init__(self, text: str) -> None:
        self._text = text

    def toString(self) -> str:  # noqa: N802 - Java's
        return self._text


class Token:
    def __init__(self, identifier: bytes, password: bytes, kind: Any, service: Any, dates: Any = None) -> None:
        self.parts = (identifier, password, kind.toString(), service.toString())
        self.getIdentifier, self.getPassword = lambda: identifier, lambda: password
        self.getKind, self.getService = lambda: kind, lambda: service
        self.decodeIdentifier = lambda: dates
        self.renewed_until_ms = 0
        self.renew = lambda conf: self.renewed_until_ms


class Credentials:
    def __init__(self, *tokens: Token) -> None:
        self.tokens = {token.parts[3]: token for token in tokens}

    def addToken(self, alias: Named, token: Token) -> None:  # noqa: N802 - Java's
        self.tokens[alias.toString()] = token

    def getToken(self, alias: Named) -> Token | None:  # noqa: N802 - Java's
        return self.tokens.get(alias.toString())

    def getAllTokens(self) -> list[Token]:  # noqa: N802 - Java's
        return list(self.tokens.values())

    def writeTokenStorageToStream(self, stream: list[bytes]) -> None:  # noqa: N802 - Java's
        stream += [repr(sorted(token.parts for token in self.tokens.values())).encode()]


def token(kind: str, service: str, issued_s: float, max_s: float, name: str = "x") -> Token:
    dates = SimpleNamespace(getIssueDate=lambda: int(issued_s * 1000), getMaxDate=lambda: int(max_s * 1000))
    return Token(name.encode(), b"password", Named(kind), Named(service), dates)


def context(held: Credentials, issued: Token | None = None) -> Any:
    """Of an application with the tokens `held`, and a ticket when a NameNode issues a token to it."""

    def add(renewer: str, credentials: Credentials) -> None:
        assert renewer == "ann@REALM"
        assert issued is not None
        credentials.addToken(issued.getService(), issued)

    user = SimpleNamespace(
        hasKerberosCredentials=lambda: issued is not None,
        getUserName=lambda: "ann@REALM",
        getCredentials=lambda: held,
    )
    files: list[str] = []
    system = SimpleNamespace(
        addDelegationTokens=add,
        getCanonicalServiceName=lambda: SERVICE,
        createNewFile=lambda path: files.append(path.url),
        getFileStatus=lambda path: SimpleNamespace(getModificationTime=lambda: int(NOW_S * 1000)),
        delete=lambda path, recursive: files.remove(path.url),
    )
    stream: list[bytes] = []
    security = SimpleNamespace(
        UserGroupInformation=SimpleNamespace(getCurrentUser=lambda: user),
        Credentials=Credentials,
        token=SimpleNamespace(Token=Token),
    )
    hadoop = SimpleNamespace(
        security=security,
        fs=SimpleNamespace(Path=lambda url: SimpleNamespace(url=url, getFileSystem=lambda conf: system)),
        io=SimpleNamespace(Text=Named),
    )
    java = SimpleNamespace(
        ByteArrayOutputStream=lambda: SimpleNamespace(toByteArray=lambda: b"".join(stream)),
        DataOutputStream=lambda inner: stream,
    )
    util = SimpleNamespace(ArrayList=lambda found: found)
    jvm = SimpleNamespace(
        org=SimpleNamespace(apache=SimpleNamespace(hadoop=hadoop)), java=SimpleNamespace(io=java, util=util)
    )
    return SimpleNamespace(_jvm=jvm, _jsc=SimpleNamespace(hadoopConfiguration=lambda: None))


def test_a_fresh_token_lasts_by_the_clock_of_its_namenode() -> None:
    issued = token("HDFS_DELEGATION_TOKEN", SERVICE, 5_000.0, 5_000.0 + 7 * 86_400)
    issued.renewed_until_ms = int((5_000.0 + 86_400) * 1000)
    fetched = fetch(context(Credentials(), issued), URL)
    assert (fetched.life_s, fetched.fresh) == (86_400.0, True)


def test_clients_ignore_a_token_in_its_last_minute() -> None:
    issued = token("HDFS_DELEGATION_TOKEN", SERVICE, 5_000.0, 5_150.0)
    issued.renewed_until_ms = 5_150_000
    fetched = fetch(context(Credentials(), issued), URL)
    assert fetched.life_s == 90.0


def test_the_store_finds_its_token_by_the_name_in_its_url() -> None:
    issued = token("HDFS_DELEGATION_TOKEN", SERVICE, 0.0, 100.0)
    fetched = fetch(context(Credentials(), issued), URL)
    for service in (SERVICE, "namenode.example:8020"):
        assert f"(b'x', b'password', 'HDFS_DELEGATION_TOKEN', '{service}')".encode() in fetched.content


def test_of_what_the_application_has_only_tokens_of_hdfs_and_its_keys_are_taken() -> None:
    later = NOW_S + 1000.0
    held = Credentials(
        token("HDFS_DELEGATION_TOKEN", SERVICE, 0.0, later, "mine"),
        token("HDFS_DELEGATION_TOKEN", "ha-hdfs:other", 0.0, later + 50.0, "other"),
        token("kms-dt", "kms", 0.0, later, "keys"),
        token("YARN_AM_RM_TOKEN", "rm", 0.0, later, "canary"),
    )
    fetched = fetch(context(held), URL)
    assert not fetched.fresh
    assert fetched.life_s == 940.0
    assert all(name in fetched.content for name in (b"mine", b"other", b"keys"))
    assert b"canary" not in fetched.content


def test_an_application_with_nothing_gets_nothing() -> None:
    held = Credentials(token("YARN_AM_RM_TOKEN", "rm", 0.0, 1.0))
    with pytest.raises(StoreError, match=r"neither a ticket nor tokens of HDFS when it started$"):
        fetch(context(held), URL)


def test_an_exception_of_java_is_reported_with_its_message() -> None:
    def refuse(conf: Any) -> Any:
        raise RuntimeError("An error occurred while calling o1.x.\n: java.io.IOException: KDC unreachable\n\tat A.b(C)")

    broken = context(Credentials())
    broken._jvm.org.apache.hadoop.fs.Path = lambda url: SimpleNamespace(getFileSystem=refuse)
    with pytest.raises(StoreError, match=f"^no delegation tokens for {URL}: java.io.IOException: KDC unreachable$"):
        fetch(broken, URL)


def test_fetched_tokens_are_never_shown() -> None:
    assert repr(Fetched(b"canary", 1.0, True)) == "Fetched(6 bytes, 1 s, fresh=True)"
