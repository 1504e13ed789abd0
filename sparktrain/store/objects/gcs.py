"""Objects in Google Cloud Storage."""

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar

from sparktrain.errors import StoreRefusedError
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
    from gcsfs.core import GCSFileSystem

_GOOGLE = "https://storage.googleapis.com"
_TYPE = "application/octet-stream"

_DENIED = ("access is denied", "let these credentials get, create, list and delete objects there: Storage Object Admin")
_NO_CREDENTIALS = (
    "the Google credentials are missing or refused",
    "set GOOGLE_APPLICATION_CREDENTIALS, run `gcloud auth application-default login`, or give the host a role",
)
_AGAIN = ("408", "409", "429")
_NO_BUCKET = ("there is no such bucket", "create it, or correct its name")


class GcsBucket(FsspecBucket["GCSFileSystem"]):
    """A bucket, with the application default credentials of this host.

    `settings` may hold `endpoint`, the URL of a service other than Google's; otherwise STORAGE_EMULATOR_HOST names it.
    """

    scheme: ClassVar[str] = "gs"

    async def settings(self) -> dict[str, str]:
        """See base class."""
        endpoint = (await self._connect())._location
        return {} if endpoint == _GOOGLE else {"endpoint": endpoint}

    async def put(self, key: str, data: bytes, writer: str) -> None:
        """See base class."""
        from gcsfs.core import simple_upload

        try:
            # gcsfs raises FileNotFoundError for a missing bucket too. Neither a put nor a listing can miss an object.
            await simple_upload(await self._connect(), self._name, key, data, {WRITER: writer}, "none", mode="create")
        except FileNotFoundError as error:
            raise StoreRefusedError(self.url) from error

    async def upload(self, key: str, writer: str) -> Upload:
        """See base class."""
        from gcsfs.core import initiate_upload

        location = await initiate_upload(await self._connect(), self._name, key, _TYPE, {WRITER: writer}, mode="create")
        return GcsUpload(self, location)

    async def head(self, key: str) -> ObjectInfo:
        """See base class."""
        resource = await self.ask("GET", "b/{}/o/{}", self._name, key, json_out=True)
        modified = datetime.fromisoformat(resource["updated"]).timestamp()
        writer = resource.get("metadata", {}).get(WRITER)
        return ObjectInfo(int(resource["size"]), modified, writer, str(resource.get("generation", "")))

    async def get(self, key: str, start: int, length: int) -> bytes:
        """See base class."""
        from gcsfs.retry import HttpError

        place = (await self._connect()).url(f"{self._name}/{key}")
        try:
            _, data = await self.ask("GET", place, headers={"Range": f"bytes={start}-{start + length - 1}"})
        except HttpError as error:
            if str(error.code) == "416":
                return b""
            raise
        return bytes(data)

    async def page(self, prefix: str, token: str | None) -> Page:
        """See base class."""
        try:
            answer = await self.ask("GET", "b/{}/o", self._name, prefix=prefix, pageToken=token, json_out=True)
        except FileNotFoundError as error:
            raise StoreRefusedError(self.url) from error
        sizes = {resource["name"]: int(resource["size"]) for resource in answer.get("items", [])}
        return Page(sizes, answer.get("nextPageToken"))

    async def delete(self, key: str) -> None:
        """See base class."""
        await self.ask("DELETE", "b/{}/o/{}", self._name, key)

    async def ask(self, method: str, path: str, *names: str, **parameters: Any) -> Any:
        """Make a request of the JSON API: its answer, or headers and body."""
        return await (await self._connect())._call(method, path, *names, **parameters)

    def explain(self, error: Exception) -> RequestFailure:
        """See base class."""
        from google.auth.exceptions import GoogleAuthError, TransportError

        code = str(getattr(error, "code", None) or type(error).__name__)
        problem = " ".join(str(error).split()) or code
        if isinstance(error, StoreRefusedError):
            return RequestFailure(RequestErrorKind.REFUSED, *_NO_BUCKET)
        if isinstance(error, FileExistsError):
            return RequestFailure(RequestErrorKind.TAKEN)
        if isinstance(error, FileNotFoundError) or code == "410":
            return RequestFailure(RequestErrorKind.MISSING)
        if code == "401" or (isinstance(error, GoogleAuthError) and not isinstance(error, TransportError)):
            return RequestFailure(RequestErrorKind.REFUSED, *_NO_CREDENTIALS)
        if problem.startswith("Forbidden"):
            return RequestFailure(RequestErrorKind.REFUSED, *_DENIED)
        if code in _AGAIN or code.startswith("5") or _is_of_network(error):
            return RequestFailure(
                RequestErrorKind.AGAIN, f"Google Cloud Storage does not answer ({code})", "check the network"
            )
        return RequestFailure(
            RequestErrorKind.FAILED, f"a request fails: {problem}", "check the bucket and the endpoint"
        )

    def _open(self) -> "GCSFileSystem":
        from aiohttp import ClientTimeout
        from gcsfs.core import GCSFileSystem

        return GCSFileSystem(
            endpoint_url=self._settings.get("endpoint"),
            requests_timeout=ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=ANSWER_S),
            use_listings_cache=False,
            skip_instance_cache=True,  # a store opened after a mistake must not reuse the earlier credentials
        )


class GcsUpload(Upload):
    """A resumable upload, which Google deletes after a week.

    A retry after a lost answer starts with bytes that the service may have, and the service skips those.
    """

    def __init__(self, bucket: GcsBucket, location: str) -> None:
        self._bucket = bucket
        self._location = location
        self._confirmed = 0
        """Bytes that the service has confirmed."""

    async def add(self, part: bytes) -> None:
        """See base class."""
        end = self._confirmed + len(part)
        headers = await self._send(part, f"{self._confirmed}-{end - 1}/*")
        received = int(headers["Range"].rpartition("-")[2]) + 1 if "Range" in headers else 0
        if received != end:
            raise ConnectionError(f"the service took {received} of {end} bytes")
        self._confirmed = end

    async def publish(self, last: bytes) -> None:
        """See base class."""
        total = self._confirmed + len(last)
        await self._send(last, f"{self._confirmed}-{total - 1}/{total}" if last else f"*/{total}")

    async def abort(self) -> None:
        """See base class."""
        # The upload's URL holds the condition for publishing, which the service does not accept for a deletion.
        await self._bucket.ask("DELETE", self._location.replace("&ifGenerationMatch=0", ""))

    async def _send(self, data: bytes, content_range: str) -> Any:
        headers = {"Content-Range": f"bytes {content_range}", "Content-Type": _TYPE, "Content-Length": str(len(data))}
        answer, _ = await self._bucket.ask("POST", self._location, headers=headers, data=data)
        return answer


def _is_of_network(error: Exception) -> bool:
    from aiohttp import ClientError
    from google.auth.exceptions import TransportError
    from requests.exceptions import RequestException

    return isinstance(error, (OSError, ClientError, RequestException, TransportError))
