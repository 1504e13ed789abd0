"""Images of containers with a few files and links, as the archives that `ctr images import` reads."""

import io
import json
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True, kw_only=True)
class Image:
    """What an image has."""

    name: str
    """With its tag: `localhost/pause:1`."""
    entrypoint: str
    files: Mapping[str, bytes]
    """Programs, by their paths."""
    links: Mapping[str, str]
    """Targets, by the paths of the links."""
    folders: Iterable[str] = ()
    """Empty ones, that any user may write to."""
    workdir: str = "/"
    """In which its programs start."""

    def write(self, path: Path) -> None:
        """Write the archive, in the layout that the Open Container Initiative specifies."""
        layer = self._layer()
        platform = {"architecture": "amd64", "os": "linux"}
        setup = {
            "Entrypoint": [self.entrypoint],
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
            "WorkingDir": self.workdir,
        }
        layers = {"type": "layers", "diff_ids": [_digest(layer)]}
        config = _json({**platform, "config": setup, "rootfs": layers})
        manifest = _json(
            {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": _descriptor(_CONFIG, config),
                "layers": [_descriptor(_LAYER, layer)],
            }
        )
        names = {"io.containerd.image.name": self.name, "org.opencontainers.image.ref.name": self.name.split(":")[1]}
        index = {"schemaVersion": 2, "manifests": [{**_descriptor(_MANIFEST, manifest), "annotations": names}]}
        blobs = {f"blobs/sha256/{sha256(blob).hexdigest()}": blob for blob in (layer, config, manifest)}
        contents = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": _json(index), **blobs}
        path.write_bytes(_archive([_file(name, content, 0o644) for name, content in contents.items()]))

    def _layer(self) -> bytes:
        links = []
        for name, target in self.links.items():
            link = tarfile.TarInfo(name.strip("/"))
            link.type = tarfile.SYMTYPE
            link.linkname = target
            links.append((link, b""))
        folders = []
        for name in self.folders:
            folder = tarfile.TarInfo(name.strip("/"))
            folder.type = tarfile.DIRTYPE
            folder.mode = 0o1777
            folders.append((folder, b""))
        files = [_file(name.strip("/"), content, 0o755) for name, content in self.files.items()]
        return _archive([*folders, *links, *files])


def _file(name: str, content: bytes, mode: int) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    info.mode = mode
    return info, content


def _archive(entries: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content))
    return archive.getvalue()


def _descriptor(kind: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": kind, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{sha256(blob).hexdigest()}"


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()
