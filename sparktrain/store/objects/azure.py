"""Objects in Azure Blob Storage, and in Data Lake Storage by its Blob endpoint."""

from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

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
    from adlfs import AzureBlobFileSystem

_KINDS = {
    "BlobAlreadyExists": RequestErrorKind.TAKEN,
    "ConditionNotMet": RequestErrorKind.TAKEN,
    "ResourceExistsError": RequestErrorKind.TAKEN,
    "UnauthorizedBlobOverwrite": RequestErrorKind.TAKEN,
    "BlobNotFound": RequestErrorKind.MISSING,
    "InvalidBlockList": RequestErrorKind.MISSING,
    "InvalidBlobOrBlock": RequestErrorKind.MISSING,
    "ServerBusy": RequestErrorKind.AGAIN,
    "InternalError": RequestErrorKind.AGAIN,
    "OperationTimedOut": RequestErrorKind.AGAIN,
    "LeaseAlreadyPresent": RequestErrorKind.AGAIN,
}
"""Kinds by the service's error code. Publishing a blob deletes the blocks of other writers of that name."""

_DENIED = ("access is denied", "give these credentials the role Storage Blob Data Contributor there")
_NO_CREDENTIALS = (
    "the Azure credentials are missing or refused",
    "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, run `az login`, or give the host an identity",
)
_NO_BUCKET = ("there is no such container", "create it, or correct its name")
_REFUSALS = {
    "ContainerNotFound": _NO_BUCKET, "AuthorizationFailure": _DENIED, "AuthorizationPermissionMismatch": _DENIED,
    "InsufficientAccountPermissions": _DENIED, "PublicAccessNotPermitted": _DENIED,
    "AuthenticationFailed": _NO_CREDENTIALS, "NoAuthenticationInformation": _NO_CREDENTIALS,
    "InvalidAuthenticationInfo": _NO_CREDENTIALS, "ClientAuthenticationError": _NO_CREDENTIALS,
    "CredentialUnavailableError": _NO_CREDENTIALS,
}  # fmt: skip


class AzureBucket(FsspecBucket["AzureBlobFileSystem"]):
    """A container, with the credentials that adlfs finds in the environment or on the host.

    `settings` may hold `account`, the name of the storage account; otherwise the environment names it.
    """

    scheme: ClassVar[str] = "abfs"

    async def settings(self) -> dict[str, str]:
        """See base class."""
        account = (await self._connect()).account_name
        return {"account": account} if account else {}

    async def put(self, key: str, data: bytes, writer: str) -> None:
        """See base class."""
        from azure.core.exceptions import ResourceExistsError

        blob = await self.blob(key)
        try:
            await blob.upload_blob(data, length=len(data), overwrite=False, metadata={WRITER: writer})
        except ResourceExistsError:
            if await blob.exists():
                raise
            # Only uncommitted blocks of a killed writer: this request conflicts with them, a list of blocks does not.
            await AzureUpload(self, key, writer).publish(data)

    async def upload(self, key: str, writer: str) -> Upload:
        """See base class."""
        return AzureUpload(self, key, writer)

    async def head(self, key: str) -> ObjectInfo:
        """See base class."""
        properties = await (await self.blob(key)).get_blob_properties()
        modified = properties.last_modified.timestamp()
        writer = properties.metadata.get(WRITER)
        return ObjectInfo(properties.size, modified, writer, properties.etag or "")

    async def get(self, key: str, start: int, length: int) -> bytes:
        """See base class."""
        from azure.core.exceptions import HttpResponseError

        try:
            answer = await (await self.blob(key)).download_blob(offset=start, length=length)
        except HttpResponseError as error:
            if error.status_code == 416:
                return b""
            raise
        data: bytes = await answer.readall()
        return data

    async def page(self, prefix: str, token: str | None) -> Page:
        """See base class."""
        container = (await self._connect()).service_client.get_container_client(self._name)
        pages = container.list_blobs(name_starts_with=prefix).by_page(token)
        async for page in pages:
            return Page({blob.name: blob.size async for blob in page}, pages.continuation_token or None)
        return Page({}, None)

    async def delete(self, key: str) -> None:
        """See base class."""
        await (await self.blob(key)).delete_blob()

    async def blob(self, key: str) -> Any:
        """Azure's own client of one object."""
        return (await self._connect()).service_client.get_blob_client(self._name, key)

    def explain(self, error: Exception) -> RequestFailure:
        """See base class."""
        from azure.core.exceptions import HttpResponseError, ServiceRequestError, ServiceResponseError

        code = str(getattr(error, "error_code", None) or type(error).__name__).rpartition(".")[2]
        status = error.status_code if isinstance(error, HttpResponseError) else None
        if code in _REFUSALS:
            return RequestFailure(RequestErrorKind.REFUSED, *_REFUSALS[code])
        if "Must provide either a connection_string or account_name" in str(error):
            return RequestFailure(RequestErrorKind.REFUSED, *_NO_CREDENTIALS)
        if code in _KINDS:
            return RequestFailure(_KINDS[code], f"the service fails ({code})", "see whether it is overloaded or down")
        if status in (403, 404, 412):
            kind = {403: RequestErrorKind.REFUSED, 404: RequestErrorKind.MISSING, 412: RequestErrorKind.TAKEN}[status]
            return RequestFailure(kind, *_DENIED)
        silent = isinstance(error, (OSError, ServiceRequestError, ServiceResponseError))
        if silent or status in (408, 429) or (status or 0) >= 500:
            return RequestFailure(
                RequestErrorKind.AGAIN, f"Azure does not answer ({code})", "check account, credentials and network"
            )
        problem = next(iter(str(error).splitlines()), code)
        return RequestFailure(
            RequestErrorKind.FAILED, f"a request fails: {problem}", "check the account and the container"
        )

    def _open(self) -> "AzureBlobFileSystem":
        from adlfs import AzureBlobFileSystem

        return AzureBlobFileSystem(
            account_name=self._settings.get("account"),
            anon=False,
            connection_timeout=CONNECT_S,
            read_timeout=ANSWER_S,
            use_listings_cache=False,
            skip_instance_cache=True,  # a store opened after a mistake must not reuse the earlier credentials
        )


class AzureUpload(Upload):
    """Uncommitted blocks of a blob, which Azure deletes after a week."""

    def __init__(self, bucket: AzureBucket, key: str, writer: str) -> None:
        self._bucket = bucket
        self._key = key
        self._writer = writer
        self._blocks: list[str] = []
        self._sent_last = False

    async def add(self, part: bytes) -> None:
        """See base class."""
        block = uuid4().hex
        await (await self._bucket.blob(self._key)).stage_block(block, part, length=len(part))
        self._blocks.append(block)

    async def publish(self, last: bytes) -> None:
        """See base class."""
        from azure.core import MatchConditions
        from azure.storage.blob import BlobBlock

        if last and not self._sent_last:
            await self.add(last)
            self._sent_last = True
        blob = await self._bucket.blob(self._key)
        await blob.commit_block_list(
            [BlobBlock(block) for block in self._blocks],
            metadata={WRITER: self._writer},
            match_condition=MatchConditions.IfMissing,
        )

    async def abort(self) -> None:
        """See base class. Does nothing: Azure deletes uncommitted blocks by itself."""
