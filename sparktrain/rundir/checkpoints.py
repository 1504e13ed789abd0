"""Checkpoints in a store: shards under fresh names, and one small manifest with their digests that makes them count.

The manifest is put where no file may be yet, after every shard has been read back: it is the only commit point. A
writer that was replaced may go on in its own generation's folder: it can overwrite nothing, and a checkpoint is
restored only by the digest that the coordinator has acknowledged. Whoever writes never deletes.

The order is that of Delta Lake's log and of Spark's `CheckpointFileManager.createAtomic`: put if absent, and no lock.
"""

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from uuid import uuid4

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from sparktrain.errors import CheckpointError
from sparktrain.ids import Generation, Member, RunId, TrialId
from sparktrain.rundir.layout import RunLayout
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.store.base import PIECE_BYTES, Store
from sparktrain.store.parallel import CheckCancelled, spread

VERSION = 1
THREADS = 4
"""How many files of a checkpoint are written or read at once; each takes a few pieces of memory (`PIECE_BYTES`)."""
MANIFEST = "manifest.json"
"""The name of a manifest beside its shards on a local disk. No shard may have it."""

_DIGEST = re.compile("[0-9a-f]{64}")
_FILE = re.compile(r"(?P<generation>.*/gen-(?P<number>\d+))/(?:manifest-(?P<manifest>\d+)|data/(?P<data>\d+)-.+)")


class Shard(Struct, frozen=True):
    """One file of a checkpoint."""

    name: str
    size: int
    """In bytes."""
    sha256: str


class Manifest(Struct, frozen=True):
    """What a checkpoint consists of, and where it comes from."""

    version: int
    run: RunId
    trial: TrialId
    generation: Generation
    step: int
    parent: str
    """Digest of the manifest of the checkpoint that was acknowledged before it, or empty."""
    data: str
    """How the paths of the shards begin; a dot and the shard's name follow."""
    shards: tuple[Shard, ...]
    keep: int
    score: float | None
    writer: str
    """The agent that wrote it."""

    def path(self, shard: Shard) -> str:
        """The path of a shard in the store."""
        return f"{self.data}.{shard.name}"


class Draft(Struct, frozen=True):
    """A snapshot on a local disk that shall become a checkpoint."""

    member: Member
    step: int
    folder: Path
    """Each file directly in it becomes a shard."""
    parent: str = ""
    keep: int = 2
    score: float | None = None
    writer: str = ""


class Listed(Struct, frozen=True):
    """A manifest that lies in the store, acknowledged or not."""

    manifest: str
    generation: Generation
    step: int
    size_bytes: int
    problem: str = ""
    """Why it cannot be read; its shards are not looked at."""


def write(
    store: Store, layout: RunLayout, draft: Draft, check: Callable[[], None] = lambda: None, threads: int = THREADS
) -> Checkpoint:
    """Make a checkpoint of the draft; leaves its manifest in the draft's folder too, which is a cache for `fetch` then.

    Blocks on the store for all of the data, twice. Called by the chief's agent. `check` is called before each operation
    that changes the store, by any of the threads; what it raises ends the attempt. Raises CheckpointError when there is
    another checkpoint of this step and generation, or nothing to write: trying again is of no use. Any other OSError
    may be over next time; another attempt has names of its own, and finds out when this one was published after all.
    """
    place = layout.generation(draft.member.trial, draft.member.generation)
    data = place.data(draft.step, uuid4().hex)
    files = sorted(path for path in draft.folder.iterdir() if path.name != MANIFEST)
    if not files:
        raise CheckpointError(f"snapshot {draft.folder} of step {draft.step} has no files: a checkpoint needs one")

    def put(file: Path, check_cancelled: CheckCancelled) -> Shard:
        def may() -> None:
            check_cancelled()
            check()

        return _put_shard(store, f"{data}.{file.name}", file, may)

    manifest = _manifest(draft, data, tuple(spread(put, files, threads)))
    check()
    content = _publish(store, place.manifest(draft.step), manifest)
    (draft.folder / MANIFEST).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    generation, path = draft.member.generation, place.manifest(draft.step)
    return Checkpoint(generation, draft.step, path, digest, draft.keep, draft.score)


def placed(layout: RunLayout, member: Member, told: Checkpoint) -> Checkpoint | None:
    """The checkpoint that an agent says it has written for `member`, at the one path where that may lie.

    The coordinator deletes and restores by this path, and agents name local folders by the digest: both come from
    another process. None when step or digest is none.
    """
    if told.step < 0 or not _DIGEST.fullmatch(told.digest):
        return None
    return replace(told, manifest=layout.generation(member.trial, member.generation).manifest(told.step))


def fetch(
    store: Store, checkpoint: Checkpoint, folder: Path, cache: Path | None = None, threads: int = THREADS
) -> None:
    """Bring the checkpoint's files and its manifest to the local `folder`, which must not exist; verify each byte.

    `cache` may be a folder with some or all of these files: those with the right digest are linked, and not read from
    the store. Blocks. Called by every agent of a gang that resumes. Raises CheckpointError when the checkpoint is
    damaged, and says where; any other OSError when the store or the local disk fails. Leaves no folder when it raises.
    """
    folder.mkdir(parents=True)
    try:
        content = _manifest_content(store, checkpoint, cache)
        (folder / MANIFEST).write_bytes(content)
        manifest = _decode(store, checkpoint, content)

        def bring(shard: Shard, check_cancelled: CheckCancelled) -> None:
            if cache is None or not _link(cache / shard.name, folder / shard.name, shard):
                with (folder / shard.name).open("xb") as file:
                    for piece in _fetched(store, checkpoint, manifest.path(shard), shard):
                        check_cancelled()
                        file.write(piece)

        spread(bring, manifest.shards, threads)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def delete(store: Store, checkpoint: Checkpoint) -> None:
    """Delete a checkpoint, and what failed attempts to write it left: first the manifest, so that none is incomplete.

    Blocks. Called by the coordinator alone, for what `Checkpoints.acknowledge` has returned. Raises OSError when the
    store fails: call it again.
    """
    store.delete(checkpoint.manifest)
    folder = checkpoint.manifest.rpartition("/")[0]
    for path in store.list(f"{folder}/data"):
        if _step(path) == checkpoint.step:
            store.delete(path)


def collect_garbage(
    store: Store, layout: RunLayout, trial: TrialId, kept: Iterable[Checkpoint], before: Generation
) -> None:
    """Delete what generations before `before` left that belongs to no checkpoint of `kept`: of failed and late writers.

    Blocks. Called by the coordinator alone, once those generations are over. Raises OSError when the store fails.
    """
    wanted = {(each.generation, each.step) for each in kept}
    files = [(found, path) for path in store.list(layout.checkpoints(trial)) if (found := _FILE.fullmatch(path))]
    doomed = [
        (found["manifest"] is None, path)
        for found, path in files
        if int(found["number"]) < before and (int(found["number"]), _step(path)) not in wanted
    ]
    for _, path in sorted(doomed):  # manifests come first
        store.delete(path)


def listed(store: Store, layout: RunLayout, trial: TrialId) -> list[Listed]:
    """All manifests of a trial in the store, for people, by generation and step. Blocks. Raises OSError."""
    entries = []
    for path in store.list(layout.checkpoints(trial)):
        found = _FILE.fullmatch(path)
        if found is None or found["manifest"] is None:
            continue
        size, problem = 0, ""
        try:
            size = sum(shard.size for shard in msgspec.json.decode(store.read(path), type=Manifest).shards)
        except msgspec.MsgspecError as error:
            problem = f"no manifest: {error}"
        entries.append(Listed(path, Generation(int(found["number"])), int(found["manifest"]), size, problem))
    return sorted(entries, key=lambda each: (each.generation, each.step))


def manifest_of(store: Store, checkpoint: Checkpoint) -> Manifest:
    """What an acknowledged checkpoint consists of. Blocks.

    Raises CheckpointError when it is damaged, and any other OSError when the store fails.
    """
    return _decode(store, checkpoint, _manifest_content(store, checkpoint, None))


def files_of(checkpoint: Checkpoint, manifest: Manifest) -> list[str]:
    """The whole paths of all files that a checkpoint consists of, its manifest's own first."""
    return [checkpoint.manifest, *(manifest.path(shard) for shard in manifest.shards)]


def verified(store: Store, checkpoint: Checkpoint, manifest: Manifest, fast: bool = False) -> Iterator[int]:
    """Read the shards again and verify them, or with `fast` their sizes alone; the bytes of each piece. Blocks.

    Raises CheckpointError for the first shard that is damaged, and any other OSError when the store fails.
    """
    for shard in manifest.shards:
        path = manifest.path(shard)
        if fast:
            _check_size(store, checkpoint, path, shard)
            yield shard.size
        else:
            yield from (len(piece) for piece in _fetched(store, checkpoint, path, shard))


def left_over(store: Store, layout: RunLayout, trial: TrialId, kept: Iterable[Checkpoint]) -> list[str]:
    """Files of the trial that no checkpoint of `kept` names, manifests first. Blocks. Raises OSError.

    Where a manifest cannot be read, all that has its generation and step is taken to belong to it.
    """
    named, unknown = set(), set()
    for each in kept:
        named.add(each.manifest)
        try:
            named.update(files_of(each, manifest_of(store, each)))
        except CheckpointError:
            unknown.add((each.generation, each.step))
    left = []
    for path in store.list(layout.checkpoints(trial)):
        found = _FILE.fullmatch(path)
        if found is None or path in named or (int(found["number"]), _step(path)) in unknown:
            continue
        left.append((found["manifest"] is None, path))
    return [path for _, path in sorted(left)]


# ---- writing


def _put_shard(store: Store, path: str, file: Path, may: Callable[[], None]) -> Shard:
    """Write a file and read it back; `may` raises when the attempt is over."""
    may()
    new = store.create(path)
    try:
        with file.open("rb", buffering=0) as source:
            while piece := source.read(PIECE_BYTES):
                may()
                new.write(piece)
        may()
        written = new.publish()
    finally:
        new.discard()
    shard = Shard(file.name, written.size, written.sha256)
    try:
        for _ in _verified(store, path, shard):
            may()
    except CheckpointError as error:
        raise OSError(errno.EIO, f"{store.where(path)} was written, but {error}") from error
    return shard


def _manifest(draft: Draft, data: str, shards: tuple[Shard, ...]) -> Manifest:
    member = draft.member
    return Manifest(
        version=VERSION,
        run=member.run,
        trial=member.trial,
        generation=member.generation,
        step=draft.step,
        parent=draft.parent,
        data=data,
        shards=shards,
        keep=draft.keep,
        score=draft.score,
        writer=draft.writer,
    )


def _publish(store: Store, path: str, manifest: Manifest) -> bytes:
    """Put the manifest at `path`; what is there now: maybe of an earlier attempt whose success nobody heard of."""
    content, failed = msgspec.json.encode(manifest), None
    try:
        store.put_if_absent(path, content)
    except OSError as error:  # it may have come through all the same
        failed = error
    try:
        found = store.read(path)
    except FileNotFoundError as error:
        raise failed or OSError(errno.EIO, f"{store.where(path)} was written, but is missing") from error
    if found != content and not _says_the_same(found, manifest):
        raise CheckpointError(
            f"checkpoint {store.where(path)} exists already with other content: another chief has written it, "
            "and this one must have been replaced; it ends"
        )
    return found


def _says_the_same(found: bytes, manifest: Manifest) -> bool:
    """Whether a manifest is of an earlier attempt to write this one: all is equal but the folder of the shards."""
    try:
        other = msgspec.json.decode(found, type=Manifest)
    except msgspec.MsgspecError:
        return False
    return msgspec.structs.replace(other, data=manifest.data) == manifest


# ---- reading


def _manifest_content(store: Store, checkpoint: Checkpoint, cache: Path | None) -> bytes:
    if cache is not None:
        content = _cached(cache / MANIFEST)
        if hashlib.sha256(content).hexdigest() == checkpoint.digest:
            return content
    try:
        content = store.read(checkpoint.manifest)
    except FileNotFoundError as error:
        raise _damaged(store, checkpoint, "its manifest is missing") from error
    if (digest := hashlib.sha256(content).hexdigest()) != checkpoint.digest:
        sizes = f"its manifest ({len(content)} bytes) has SHA-256 {digest}"
        raise _damaged(store, checkpoint, f"{sizes}, and {checkpoint.digest} was acknowledged")
    return content


def _decode(store: Store, checkpoint: Checkpoint, content: bytes) -> Manifest:
    """The manifest, of this version, for this checkpoint, and with names that stay in their folder."""
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except msgspec.MsgspecError as error:
        raise _damaged(store, checkpoint, f"its manifest is none: {error}") from error
    if manifest.version != VERSION:
        problem = f"its manifest has version {manifest.version}, and this sparktrain reads version {VERSION}"
        raise _damaged(store, checkpoint, problem)
    if (manifest.generation, manifest.step) != (checkpoint.generation, checkpoint.step):
        problem = f"its manifest is for generation {manifest.generation}, step {manifest.step}"
        raise _damaged(store, checkpoint, problem)
    if not manifest.data.startswith(f"{checkpoint.manifest.rpartition('/')[0]}/data/"):
        raise _damaged(store, checkpoint, f"its manifest has its shards in {manifest.data!r}, where others write")
    for shard in manifest.shards:
        if shard.name in ("", ".", "..", MANIFEST) or "/" in shard.name or "\0" in shard.name:
            raise _damaged(store, checkpoint, f"its manifest has a shard of the name {shard.name!r}")
    return manifest


def _fetched(store: Store, checkpoint: Checkpoint, path: str, shard: Shard) -> Iterator[bytes]:
    try:
        yield from _verified(store, path, shard)
    except CheckpointError as error:
        raise _damaged(store, checkpoint, f"shard {shard.name} {error}") from error


def _verified(store: Store, path: str, shard: Shard) -> Iterator[bytes]:
    """The shard's pieces. Raises CheckpointError, at the latest after the last, when they are not what was written."""
    digest, size = hashlib.sha256(), 0
    try:
        for piece in store.pieces(path):
            digest.update(piece)
            size += len(piece)
            if size > shard.size:
                break
            yield piece
    except FileNotFoundError as error:
        raise CheckpointError("is missing") from error
    if size != shard.size:
        raise CheckpointError(f"has {'more than ' * (size > shard.size)}{min(size, shard.size)} of {shard.size} bytes")
    if digest.hexdigest() != shard.sha256:
        raise CheckpointError(f"has SHA-256 {digest.hexdigest()}, and {shard.sha256} was written")


def _check_size(store: Store, checkpoint: Checkpoint, path: str, shard: Shard) -> None:
    try:
        size = store.stat(path).size
    except FileNotFoundError as error:
        raise _damaged(store, checkpoint, f"shard {shard.name} is missing") from error
    if size != shard.size:
        raise _damaged(store, checkpoint, f"shard {shard.name} has {size} of {shard.size} bytes")


def _link(source: Path, target: Path, shard: Shard) -> bool:
    """Give a file of the same disk the name `target` too, when it is the shard, and can be read."""
    try:
        if not source.is_file() or source.stat().st_size != shard.size:
            return False
        os.link(source, target)
        with target.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == shard.sha256:
                return True
    except OSError:  # the disk is failing, or somebody has changed its files: the store has it too
        pass
    target.unlink(missing_ok=True)
    return False


def _cached(manifest: Path) -> bytes:
    """What a local copy of a manifest has; nothing when it cannot be read."""
    try:
        return manifest.read_bytes()
    except OSError:
        return b""


def _damaged(store: Store, checkpoint: Checkpoint, problem: str) -> CheckpointError:
    where = f"checkpoint {store.where(checkpoint.manifest)} of step {checkpoint.step}"
    return CheckpointError(f"{where} is damaged: {problem}; an older checkpoint of the trial can be resumed from")


def _step(path: str) -> int | None:
    found = _FILE.fullmatch(path)
    return int(found["manifest"] or found["data"]) if found else None
