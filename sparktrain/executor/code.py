"""The user's code on an executor: kept in local files, by digest, and never loaded here."""

import hashlib
import zipfile
from io import BytesIO
from pathlib import Path

from msgspec import Struct

from sparktrain.errors import ProtocolError
from sparktrain.protocol.messages import Code


class LocalCode(Struct, frozen=True):
    """Where a member's process finds the function and the modules beside it."""

    path: Path
    by_reference: bool
    sys_path: tuple[str, ...]


def keep(code: Code, folder: Path) -> LocalCode:
    """Write `code` below `folder`, once for each digest. Blocks on local disk.

    Raises ProtocolError when the bytes do not have the digest that came with them.
    """
    digest = hashlib.sha256(code.function + code.archive).hexdigest()
    if digest != code.digest:
        raise ProtocolError(f"code with digest {digest} came as {code.digest}: it was damaged on its way")
    home = folder / digest
    local = LocalCode(home / "function", code.by_reference, (str(home / "modules"),) if code.archive else ())
    if not home.exists():
        home.mkdir(parents=True)
        if code.archive:
            with zipfile.ZipFile(BytesIO(code.archive)) as archive:
                archive.extractall(home / "modules")
        local.path.write_bytes(code.function)
    return local
