"""Classifies Hadoop's errors for the contract of a store, and explains them to people."""

import errno
import re
from enum import Enum

_GSSAPI = re.compile(r'GSSAPIError\(.*"(.+)"\)')
"""The text of the Kerberos library's error, after its numbers."""
_NO_DIRECTORY = re.compile(r"\(is not a directory\)|is not a directory\.$")
_QUOTA_STEP = (
    "free some space there, or ask for a larger quota (hdfs dfs -count -q shows it; HDFS charges a full block, 128 MiB "
    "unless set otherwise, times the replication for each file while it is written, however small)"
)
KERBEROS_STEP = "run kinit, or submit with --principal and --keytab, and see `klist`"
_REPLICATED_STEP = (
    "choose a replicated folder, or have files that are written there from now on replicated "
    "(hdfs ec -setPolicy -replicate -path DIR)"
)
_CONNECTION_STEP = "see that its NameNode and DataNodes run, and that this host can connect to them"


class HdfsErrorKind(Enum):
    """What a store does about an error."""

    TRANSIENT = "retry"
    OVERDUE = "retry with another client, because no answer came"
    FULL = "retry, because it is often transient; if it persists, a person must act"
    REFUSED = "give up: it persists until a person acts"


class HadoopCallError(OSError):
    """A client's call failed for a reason that is not part of the contract of a store."""

    def __init__(self, cause: str, step: str, kind: HdfsErrorKind = HdfsErrorKind.TRANSIENT) -> None:
        super().__init__(errno.EIO, f"{cause}; {step}")
        self.cause = cause
        self.step = step
        self.kind = kind


_REFUSED = {
    "AccessControlException": "choose another directory, or have its owner let this user write there (hdfs dfs -ls -d)",
    "AuthorizationException": "choose another user or directory, or ask who runs this HDFS",
    "DSQuotaExceededException": _QUOTA_STEP,
    "FSLimitException$MaxDirectoryItemsExceededException": "choose a directory with fewer files",
    "FSLimitException$PathComponentTooLongException": "choose a shorter name",
    "InvalidPathException": "choose a name that HDFS takes: without ':'",
    "InvalidToken": "submit again: the delegation token of this run has expired, or was cancelled",
    "NSQuotaExceededException": "delete files there, or ask for a larger quota (hdfs dfs -count -q shows it)",
    "QuotaByStorageTypeExceededException": _QUOTA_STEP,
    "SecretManager$InvalidToken": "submit again: the delegation token of this run has expired, or was cancelled",
}
_TRANSIENT = {
    "SafeModeException": ("its NameNode is in safe mode", "wait until it has left it (hdfs dfsadmin -safemode get)"),
    "StandbyException": ("none of its NameNodes is active", "wait until one is (hdfs haadmin -getAllServiceState)"),
}
_CONTRACT_ERRORS: dict[str, type[OSError]] = {
    "AlreadyBeingCreatedException": FileExistsError,
    "FileAlreadyExistsException": FileExistsError,
    "FileNotFoundException": FileNotFoundError,
    "ParentNotDirectoryException": NotADirectoryError,
    "PathIsNotDirectoryException": NotADirectoryError,
}


def explain(java_class: str, message: str, server: str = "") -> OSError:
    """Map an error of class `java_class`, with or without its package; empty when it is not from Java.

    `server` is the principal of the service that demands a ticket, if known.
    """
    name = java_class.rpartition(".")[2]
    line = first_line(message)
    if _NO_DIRECTORY.search(line):
        return NotADirectoryError(errno.ENOTDIR, line)
    if name in _CONTRACT_ERRORS:
        return _CONTRACT_ERRORS[name](line)
    if "SIMPLE authentication is not enabled" in line or "GSSAPIError" in line or "GSS_S_" in line:
        problem = f"no valid Kerberos ticket for {server}" if server else "no valid Kerberos ticket"
        detail = _GSSAPI.search(line)
        return HadoopCallError(f"{problem} ({detail[1] if detail else line})", KERBEROS_STEP, HdfsErrorKind.REFUSED)
    if name in _REFUSED:
        return HadoopCallError(line, _REFUSED[name], HdfsErrorKind.REFUSED)
    if name in _TRANSIENT:
        cause, step = _TRANSIENT[name]
        return HadoopCallError(f"{cause} ({line})", step)
    if "not supported for erasure-coded files" in line:
        return HadoopCallError(line, _REPLICATED_STEP, HdfsErrorKind.REFUSED)
    if "could only be written to" in line:
        return HadoopCallError(
            line, "see whether its DataNodes are full or dead (hdfs dfsadmin -report)", HdfsErrorKind.FULL
        )
    if "DataTransferError" in line or "Checksum" in name:
        return HadoopCallError(line, "see whether blocks of the file are missing or corrupt (hdfs fsck)")
    return HadoopCallError(f"{name}: {line}" if name else line, _CONNECTION_STEP)


def first_line(message: str) -> str:
    """`message` without the Java stack trace that follows it."""
    return re.split(r"\n|\\n", message, maxsplit=1)[0].strip()
