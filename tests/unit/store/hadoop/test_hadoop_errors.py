"""How Hadoop's errors are classified and explained. The messages are Hadoop's own, cut short."""

import pytest

from sparktrain.config.store_address import StoreAddress
from sparktrain.store.hadoop.hadoop_errors import HadoopCallError, HdfsErrorKind, explain
from sparktrain.store.hadoop.hdfs import HdfsStore

TRACE = "\n\tat org.apache.hadoop.hdfs.server.namenode.FSNamesystem.startFile(FSNamesystem.java:2745)"


@pytest.mark.parametrize(
    ("java_class", "message", "kind", "expected"),
    [
        ("org.apache.hadoop.security.AccessControlException", f"Permission denied: user=zoe, access=WRITE{TRACE}",
         HdfsErrorKind.REFUSED, "Permission denied: user=zoe, access=WRITE; choose another directory"),
        ("DSQuotaExceededException", f"The DiskSpace quota of /q is exceeded: quota = 1 B{TRACE}",
         HdfsErrorKind.REFUSED, "The DiskSpace quota of /q is exceeded: quota = 1 B; free some space"),
        ("org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException", "The maximum path",
         HdfsErrorKind.REFUSED, "choose a shorter name"),
        ("org.apache.hadoop.fs.InvalidPathException", "Invalid path name /a/x:y", HdfsErrorKind.REFUSED, "without ':'"),
        ("", "GSSAPIError(GSS_S_NO_CRED)", HdfsErrorKind.REFUSED, "no valid Kerberos ticket"),
        ("AccessControlException", "SIMPLE authentication is not enabled.", HdfsErrorKind.REFUSED, "run kinit"),
        ("org.apache.hadoop.hdfs.server.namenode.SafeModeException", "Cannot create file/a.", HdfsErrorKind.TRANSIENT,
         "its NameNode is in safe mode (Cannot create file/a.); wait"),
        ("java.io.IOException", "File /a could only be written to 0 of the 1 minReplication nodes.", HdfsErrorKind.FULL,
         "dfsadmin -report"),
        ("java.io.EOFException", "End of File", HdfsErrorKind.TRANSIENT, "EOFException: End of File; see"),
        ("", "Connection refused (os error 111)", HdfsErrorKind.TRANSIENT, "Connection refused (os error 111); see"),
        ("", 'DataTransferError("All DataNodes failed")', HdfsErrorKind.TRANSIENT, "hdfs fsck"),
        ("", 'OperationFailed("hsync is not supported for erasure-coded files")', HdfsErrorKind.REFUSED,
         "erasure-coded files\"); choose a replicated folder"),
    ],
)  # fmt: skip
def test_an_error_has_a_kind_a_cause_and_a_step(
    java_class: str, message: str, kind: HdfsErrorKind, expected: str
) -> None:
    failure = explain(java_class, message)
    assert isinstance(failure, HadoopCallError)
    assert failure.kind is kind
    assert expected in f"{failure.cause}; {failure.step}"
    assert "\n" not in str(failure)


def test_a_kerberos_error_names_the_service_and_the_reason() -> None:
    message = (
        'GSSAPIError(GssMajorCodes { raw: "0x00070000", calling_error: "none", routine_error: "GSS_S_NO_CRED" }, '
        '2529639053, "No credentials were supplied: No Kerberos credentials available (default cache: /tmp/k)")'
    )
    failure = explain("", message, "hdfs/_HOST@REALM")
    assert isinstance(failure, HadoopCallError)
    assert failure.cause == (
        "no valid Kerberos ticket for hdfs/_HOST@REALM (No credentials were supplied: No Kerberos credentials "
        "available (default cache: /tmp/k))"
    )


@pytest.mark.parametrize("word", ["RPCError", "FatalRPCError"])
def test_an_error_with_which_a_namenode_closes_the_connection_is_explained_too(word: str) -> None:
    store = HdfsStore(StoreAddress("hdfs://a:1/runs"))
    error = RuntimeError(f'{word}("org.apache.hadoop.security.token.SecretManager$InvalidToken", "Token has expired")')
    failure = store._explain(error)
    assert isinstance(failure, HadoopCallError)
    assert (failure.cause, failure.kind) == ("Token has expired", HdfsErrorKind.REFUSED)


@pytest.mark.parametrize(
    ("java_class", "message", "error"),
    [
        ("java.io.FileNotFoundException", f"File does not exist: /a{TRACE}", FileNotFoundError),
        ("org.apache.hadoop.fs.FileAlreadyExistsException", "/a already exists", FileExistsError),
        ("org.apache.hadoop.hdfs.protocol.AlreadyBeingCreatedException", "Failed to APPEND_FILE", FileExistsError),
        ("org.apache.hadoop.fs.ParentNotDirectoryException", "/a/b/f (is not a directory)", NotADirectoryError),
        ("org.apache.hadoop.security.AccessControlException", "/a/b/f (is not a directory)", NotADirectoryError),
        ("", "'/w/a/f' is not a directory.", NotADirectoryError),
    ],
)  # fmt: skip
def test_errors_of_the_store_contract_keep_their_class(java_class: str, message: str, error: type[OSError]) -> None:
    assert type(explain(java_class, message)) is error
