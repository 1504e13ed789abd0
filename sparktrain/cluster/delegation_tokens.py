"""Delegation tokens from the JVM of a Spark session: it has a ticket, or tokens that Spark renews."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from sparktrain.clock import SystemClock
from sparktrain.errors import StoreError
from sparktrain.store.hadoop.hadoop_conf import split

MARGIN_S = 60.0
"""A client ignores a token from so long before its last date on."""

_OF_HDFS = "HDFS_DELEGATION_TOKEN"
_KINDS = (_OF_HDFS, "kms-dt")
"""Those of HDFS, and of the keys to its encrypted folders. Others of the application are nobody else's business."""


class Fetched(Struct, frozen=True):
    """Tokens for the agents of a run."""

    content: bytes
    """Of a file as Hadoop writes it: a secret."""
    life_s: float
    """How long all of them can be used from now on."""
    fresh: bool
    """They were made for this call, by a ticket; others are those that the application has."""

    def __repr__(self) -> str:
        return f"Fetched({len(self.content)} bytes, {self.life_s:g} s, fresh={self.fresh})"


def fetch(context: Any, url: str) -> Fetched:
    """Tokens for the HDFS of `url`, from the JVM of the SparkContext `context`.

    Blocks on the NameNode, perhaps for long. Raises StoreError when there are none.
    """
    try:
        fetched = _fetch(context._jvm, context._jsc.hadoopConfiguration(), url)
    except Exception as error:  # Py4J's, whatever Java has raised
        raise StoreError(f"no delegation tokens for {url}: {_cause(error)}") from error
    if fetched is None:
        raise StoreError(
            f"no delegation tokens for {url}: Spark had neither a ticket nor tokens of HDFS when it was started"
        )
    return fetched


def _fetch(jvm: Any, conf: Any, url: str) -> Fetched | None:
    security = jvm.org.apache.hadoop.security
    user, found = security.UserGroupInformation.getCurrentUser(), security.Credentials()
    system = jvm.org.apache.hadoop.fs.Path(url).getFileSystem(conf)
    fresh = bool(user.hasKerberosCredentials())
    if fresh:
        system.addDelegationTokens(user.getUserName(), found)
    else:
        for token in _all(jvm, user.getCredentials()):
            if token.getKind().toString() in _KINDS:
                found.addToken(token.getService(), token)
    of_hdfs = [token for token in _all(jvm, found) if token.getKind().toString() == _OF_HDFS]
    if not of_hdfs:
        return None
    life_s = min(_renewed_life_s(token, conf) if fresh else _rest_s(token) for token in of_hdfs)
    mine = found.getToken(jvm.org.apache.hadoop.io.Text(system.getCanonicalServiceName()))
    if mine is not None:
        # Hadoop's own clients look it up by the NameNode's IP address; the store's by what its URL says.
        authority = jvm.org.apache.hadoop.io.Text(split(url)[0])
        arguments = (mine.getIdentifier(), mine.getPassword(), mine.getKind(), authority)
        found.addToken(authority, security.token.Token(*arguments))
    stream = jvm.java.io.ByteArrayOutputStream()
    found.writeTokenStorageToStream(jvm.java.io.DataOutputStream(stream))
    return Fetched(bytes(stream.toByteArray()), life_s, fresh)


def _all(jvm: Any, credentials: Any) -> Iterable[Any]:
    """Their tokens; Py4J can walk over a list, and not over what Hadoop returns."""
    found: Iterable[Any] = jvm.java.util.ArrayList(credentials.getAllTokens())
    return found


def _renewed_life_s(token: Any, conf: Any) -> float:
    """Of a new token: the NameNode tells its end when asked to renew it, and all times are by its clock."""
    told = token.decodeIdentifier()
    ends_s = min(token.renew(conf) / 1000, told.getMaxDate() / 1000 - MARGIN_S)
    return float(ends_s - told.getIssueDate() / 1000)


def _rest_s(token: Any) -> float:
    """Of a token whose renewer is YARN: until when it can be renewed at all."""
    return float(token.decodeIdentifier().getMaxDate() / 1000 - MARGIN_S - SystemClock().wall())


def _cause(error: Exception) -> str:
    """What Java says; Py4J puts it on the second line."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if not line.startswith("An error occurred")), type(error).__name__)
