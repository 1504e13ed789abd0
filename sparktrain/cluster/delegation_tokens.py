"""Delegation tokens from the JVM of a Spark session, which has a ticket or tokens that Spark renews."""

from collections.abc import Iterable
from typing import Any
from uuid import uuid4

from msgspec import Struct

from sparktrain.errors import StoreError
from sparktrain.store.base import UNPUBLISHED
from sparktrain.store.hadoop.hadoop_conf import split

MARGIN_S = 60.0
"""A client ignores a token in this last part of its life."""

_OF_HDFS = "HDFS_DELEGATION_TOKEN"
_KINDS = (_OF_HDFS, "kms-dt")
"""Tokens of HDFS and of the keys to its encrypted folders. The application's other tokens stay in the driver."""


class Fetched(Struct, frozen=True):
    """Tokens for the agents of a run."""

    content: bytes
    """The content of a token file in Hadoop's format: a secret."""
    life_s: float
    """How long all of them are valid from now on."""
    fresh: bool
    """Whether a ticket fetched them for this call; otherwise they are the application's own."""

    def __repr__(self) -> str:
        return f"Fetched({len(self.content)} bytes, {self.life_s:g} s, fresh={self.fresh})"


def fetch(context: Any, url: str) -> Fetched:
    """Tokens for the HDFS of `url`, from the JVM of the SparkContext `context`.

    Blocks on the NameNode, perhaps for long. Raises StoreError when the JVM can get none.
    """
    try:
        fetched = _fetch(context._jvm, context._jsc.hadoopConfiguration(), url)
    except Exception as error:  # Py4J wraps whatever Java raises
        raise StoreError(f"no delegation tokens for {url}: {_cause(error)}") from error
    if fetched is None:
        raise StoreError(
            f"no delegation tokens for {url}: Spark had neither a ticket nor tokens of HDFS when it started"
        )
    return fetched


def _fetch(jvm: Any, conf: Any, url: str) -> Fetched | None:
    security = jvm.org.apache.hadoop.security
    user = security.UserGroupInformation.getCurrentUser()
    credentials = security.Credentials()
    system = jvm.org.apache.hadoop.fs.Path(url).getFileSystem(conf)
    fresh = bool(user.hasKerberosCredentials())
    if fresh:
        system.addDelegationTokens(user.getUserName(), credentials)
    else:
        for token in _all(jvm, user.getCredentials()):
            if token.getKind().toString() in _KINDS:
                credentials.addToken(token.getService(), token)
    of_hdfs = [token for token in _all(jvm, credentials) if token.getKind().toString() == _OF_HDFS]
    if not of_hdfs:
        return None
    now_s = 0.0 if fresh else _namenode_s(jvm, system, url)
    life_s = min(_renewed_life_s(token, conf) if fresh else _rest_s(token, now_s) for token in of_hdfs)
    mine = credentials.getToken(jvm.org.apache.hadoop.io.Text(system.getCanonicalServiceName()))
    if mine is not None:
        # Hadoop's own clients look a token up by the NameNode's IP address, the store's client by the name in its URL.
        authority = jvm.org.apache.hadoop.io.Text(split(url)[0])
        arguments = (mine.getIdentifier(), mine.getPassword(), mine.getKind(), authority)
        credentials.addToken(authority, security.token.Token(*arguments))
    stream = jvm.java.io.ByteArrayOutputStream()
    credentials.writeTokenStorageToStream(jvm.java.io.DataOutputStream(stream))
    return Fetched(bytes(stream.toByteArray()), life_s, fresh)


def _all(jvm: Any, credentials: Any) -> Iterable[Any]:
    """The tokens of `credentials`, as a list: Py4J cannot iterate over what Hadoop returns."""
    tokens: Iterable[Any] = jvm.java.util.ArrayList(credentials.getAllTokens())
    return tokens


def _renewed_life_s(token: Any, conf: Any) -> float:
    """The life of a new token. A renewal returns its end; all times are by the NameNode's clock."""
    identifier = token.decodeIdentifier()
    ends_s = min(token.renew(conf) / 1000, identifier.getMaxDate() / 1000 - MARGIN_S)
    return float(ends_s - identifier.getIssueDate() / 1000)


def _rest_s(token: Any, now_s: float) -> float:
    """The rest of the life of a token that YARN renews: until it can be renewed no more."""
    return float(token.decodeIdentifier().getMaxDate() / 1000 - MARGIN_S - now_s)


def _namenode_s(jvm: Any, system: Any, url: str) -> float:
    """Seconds since 1970 by the clock of the NameNode: the time of a file that this makes below `url`, and deletes."""
    path = jvm.org.apache.hadoop.fs.Path(f"{url.rstrip('/')}/{UNPUBLISHED}{uuid4().hex}")
    system.createNewFile(path)
    try:
        return float(system.getFileStatus(path).getModificationTime() / 1000)
    finally:
        system.delete(path, False)


def _cause(error: Exception) -> str:
    """Java's message, which Py4J puts on the second line."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if not line.startswith("An error occurred")), type(error).__name__)
