"""Objects in S3, and in services with its API."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from sparktrain.store.objects.bucket import (
    ANSWER_S,
    CONNECT_S,
    WRITER,
    ObjectInfo,
    Page,
    RequestErrorKind,
    RequestFailure,
    Upload,
)
from sparktrain.store.objects.fsspec_bucket import FsspecBucket

if TYPE_CHECKING:
    from s3fs import S3FileSystem

_AWS_ENDPOINT = re.compile(r"https://s3(\.[a-z0-9-]+)?\.amazonaws\.com(\.cn)?/?")

# 409 (ConditionalRequestConflict, OperationAborted) is no verdict: another request for this key is being executed, and
# a retry learns who has won.
_KINDS = {
    RequestErrorKind.TAKEN: ("PreconditionFailed", "412"),
    RequestErrorKind.MISSING: ("NoSuchKey", "NoSuchUpload", "NotFound", "404"),
    RequestErrorKind.AGAIN: (
        "SlowDown", "ServiceUnavailable", "InternalError", "RequestTimeout", "OperationAborted", "BadDigest",
        "ConditionalRequestConflict", "Throttling", "ThrottlingException", "TooManyRequests", "IncompleteBody",
        "XAmzContentSHA256Mismatch", "409", "429",
    ),
}  # fmt: skip
_KIND_OF = {code: kind for kind, codes in _KINDS.items() for code in codes}

_NO_BUCKET = ("there is no such bucket", "create it, or correct its name")
_DENIED = ("access is denied", "let these credentials get, put, list and delete objects there, or pass another bucket")
_WRONG_CREDENTIALS = ("the credentials are refused", "renew or correct them")
_NO_CREDENTIALS = (
    "there are no AWS credentials",
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the host a role",
)
_WRONG_CLOCK = ("this host's clock is wrong", "set it")
_FULL = ("the quota is used up", "delete objects, or raise it")

_REFUSALS = {
    "NoSuchBucket": _NO_BUCKET, "AccessDenied": _DENIED, "AllAccessDisabled": _DENIED, "AccountProblem": _DENIED,
    "403": _DENIED, "401": _WRONG_CREDENTIALS, "InvalidAccessKeyId": _WRONG_CREDENTIALS,
    "SignatureDoesNotMatch": _WRONG_CREDENTIALS, "ExpiredToken": _WRONG_CREDENTIALS, "InvalidToken": _WRONG_CREDENTIALS,
    "TokenRefreshRequired": _WRONG_CREDENTIALS, "RequestTimeTooSkewed": _WRONG_CLOCK, "QuotaExceeded": _FULL,
    "XMinioStorageFull": _FULL, "NoCredentialsError": _NO_CREDENTIALS, "PartialCredentialsError": _NO_CREDENTIALS,
    "CredentialRetrievalError": _NO_CREDENTIALS, "ProfileNotFound": _NO_CREDENTIALS,
    "TokenRetrievalError": _NO_CREDENTIALS, "NoAuthTokenError": _NO_CREDENTIALS, "SSOTokenLoadError": _NO_CREDENTIALS,
    "UnauthorizedSSOTokenError": _NO_CREDENTIALS,
}  # fmt: skip
"""Cause and step by the service's code, or by the class of the client's error."""


class S3Bucket(FsspecBucket["S3FileSystem"]):
    """A bucket, with the credentials that AWS's own tools find on this host.

    `settings` may hold `endpoint`, the URL of a service other than AWS, and `region`; otherwise they come from the
    environment and the files that AWS's tools read.
    """

    deleted_at_once: ClassVar[int] = 1000
    """The most objects that one request deletes."""

    scheme: ClassVar[str] = "s3"

    def __init__(self, name: str, settings: dict[str, str]) -> None:
        super().__init__(name, settings)
        self._endpoint = _host(settings.get("endpoint", "")) or "S3"
        """The service's name in messages."""

    async def settings(self) -> dict[str, str]:
        """See base class."""
        client = (await self._connect()).s3.meta
        client_settings = {"region": client.region_name, "endpoint": client.endpoint_url}
        if _AWS_ENDPOINT.fullmatch(client.endpoint_url):
            del client_settings["endpoint"]  # a client asks AWS for the region of a bucket
        return {name: value for name, value in client_settings.items() if value}

    async def put(self, key: str, data: bytes, writer: str) -> None:
        """See base class."""
        await self.ask("put_object", Key=key, Body=data, Metadata={WRITER: writer}, IfNoneMatch="*")

    async def upload(self, key: str, writer: str) -> Upload:
        """See base class."""
        started = await self.ask("create_multipart_upload", Key=key, Metadata={WRITER: writer})
        return S3Upload(self, key, started["UploadId"])

    async def head(self, key: str) -> ObjectInfo:
        """See base class."""
        response = await self.ask("head_object", Key=key)
        modified = response["LastModified"].timestamp()
        writer = response["Metadata"].get(WRITER)
        return ObjectInfo(response["ContentLength"], modified, writer, response.get("ETag", ""))

    async def get(self, key: str, start: int, length: int) -> bytes:
        """See base class."""
        try:
            answer = await self.ask("get_object", Key=key, Range=f"bytes={start}-{start + length - 1}")
        except OSError as error:
            # S3 refuses a range that starts at or after the end, also in an empty object.
            if _code(error) in ("InvalidRange", "416"):
                return b""
            raise
        async with answer["Body"] as body:
            data: bytes = await body.read()
        return data

    async def page(self, prefix: str, token: str | None) -> Page:
        """See base class."""
        continuation = {"ContinuationToken": token} if token else {}
        answer = await self.ask("list_objects_v2", Prefix=prefix, **continuation)
        sizes = {content["Key"]: content["Size"] for content in answer.get("Contents", [])}
        return Page(sizes, answer.get("NextContinuationToken"))

    async def delete(self, key: str) -> None:
        """See base class."""
        await self.ask("delete_object", Key=key)

    async def delete_many(self, keys: Sequence[str]) -> None:
        """See base class."""
        from botocore.exceptions import ClientError

        # S3 answers 200 even where single keys were not deleted: the errors are in the body.
        doomed = {"Objects": [{"Key": key} for key in keys], "Quiet": True}
        answer = await self.ask("delete_objects", Delete=doomed)
        for problem in answer.get("Errors", []):
            if problem.get("Code") != "NoSuchKey":
                raise ClientError({"Error": {"Code": problem.get("Code"), "Message": problem.get("Message")}}, "delete")

    async def ask(self, method: str, **parameters: object) -> Any:
        """Make a request of S3; its answer is a dict that depends on the method."""
        files = await self._connect()
        return await files._call_s3(method, Bucket=self._name, **parameters)

    def explain(self, error: Exception) -> RequestFailure:
        """See base class."""
        code = _code(error)
        if code in _REFUSALS:
            return RequestFailure(RequestErrorKind.REFUSED, *_REFUSALS[code])
        if code in _KIND_OF or code.startswith("5"):
            kind = _KIND_OF.get(code, RequestErrorKind.AGAIN)
            return RequestFailure(kind, f"the service fails ({code})", "see whether it is overloaded or down")
        if _is_of_network(error):
            step = "check the endpoint (AWS_ENDPOINT_URL) and the network"
            return RequestFailure(RequestErrorKind.AGAIN, f"{self._endpoint} does not answer ({code})", step)
        problem = " ".join(str(error.__cause__ or error).split()) or code
        return RequestFailure(
            RequestErrorKind.FAILED, f"a request fails: {problem}", "check the bucket, its region and the endpoint"
        )

    async def _connect(self) -> "S3FileSystem":
        files = await super()._connect()
        client = await files.set_session()
        self._endpoint = _host(client.meta.endpoint_url)
        return files

    def _open(self) -> "S3FileSystem":
        from s3fs import S3FileSystem

        files = S3FileSystem(
            endpoint_url=self._settings.get("endpoint"),
            client_kwargs={"region_name": self._settings["region"]} if "region" in self._settings else {},
            config_kwargs={
                "connect_timeout": CONNECT_S,
                "read_timeout": ANSWER_S,
                "retries": {"total_max_attempts": 1},  # `ObjectStoreCall` retries, and knows the deadline
            },
            use_listings_cache=False,
            skip_instance_cache=True,  # a store opened after a mistake must not reuse the earlier credentials
        )
        # Beside the retries of its client, s3fs makes five attempts of its own.
        files.retries = 1
        return files


class S3Upload(Upload):
    """A multipart upload. If it is not ended, its parts stay invisible until a lifecycle rule deletes them."""

    def __init__(self, bucket: S3Bucket, key: str, upload_id: str) -> None:
        self._bucket = bucket
        self._upload = {"Key": key, "UploadId": upload_id}
        self._parts: list[dict[str, object]] = []
        self._sent_last = False

    async def add(self, part: bytes) -> None:
        """See base class."""
        number = len(self._parts) + 1
        answer = await self._bucket.ask("upload_part", **self._upload, PartNumber=number, Body=part)
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"]})

    async def publish(self, last: bytes) -> None:
        """See base class."""
        # A retry after a lost answer must end the upload with the same parts, so the last one is sent only once.
        if not self._sent_last:
            if last or not self._parts:
                await self.add(last)
            self._sent_last = True
        parts = {"Parts": self._parts}
        await self._bucket.ask("complete_multipart_upload", **self._upload, MultipartUpload=parts, IfNoneMatch="*")

    async def abort(self) -> None:
        """See base class."""
        await self._bucket.ask("abort_multipart_upload", **self._upload)


def _host(endpoint: str) -> str:
    """Host and port of a URL, without a secret before them."""
    return urlsplit(endpoint).netloc.rpartition("@")[2]


def _code(error: Exception) -> str:
    """The service's code of `error`, or the class of an error of the client."""
    answer = _answer(error)
    return type(error).__name__ if answer is None else str(answer.get("Error", {}).get("Code", ""))


def _answer(error: Exception) -> dict[str, Any] | None:
    """The service's answer, if there was one."""
    answer = getattr(error.__cause__ or error, "response", None)
    return answer if isinstance(answer, dict) else None


def _is_of_network(error: Exception) -> bool:
    from aiohttp import ClientError
    from botocore.exceptions import ConnectionError, HTTPClientError, IncompleteReadError, SSLError
    from botocore.parsers import ResponseParserError

    # A certificate that does not fit is refused at each retry.
    if _answer(error) is not None or isinstance(error, SSLError):
        return False
    clients = (ClientError, ConnectionError, HTTPClientError, IncompleteReadError, ResponseParserError)
    return isinstance(error, (OSError, *clients))
