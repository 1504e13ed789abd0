"""Checkpoints in a store: shards under fresh names, and one small manifest with their digests, which commits them.

In comes a snapshot on the chief's local disk. Its files go to the store as shards, and each is read back. The
manifest then follows by put-if-absent: it is the only commit point. Where all members write parts of one checkpoint,
each stores its shards with `write_part`, and the chief calls `commit` once. What goes out is the digest of the
manifest; the coordinator acknowledges it, and a checkpoint is restored only by that digest. So a replaced writer may
continue in a folder of its own, which has the name of its generation, and in a ring that heals that of its
incarnation: it can overwrite nothing, takes no name of its successor, and what it writes is never restored. Writers
never delete.

What must hold: each manifest that exists has all its shards, so every deletion starts with the manifest. There is no
deadline here: each call of the store has its own, and `check` ends an attempt that comes too late.

The protocol is that of Delta Lake's log and of Spark's `CheckpointFileManager.createAtomic`: put-if-absent, no lock.
"""

import errno
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from uuid import uuid4

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from sparktrain.base.decoding import from_json
from sparktrain.base.ids import Generation, Member, RunId, TrialId
from sparktrain.errors import CheckpointError
from sparktrain.rundir.layout import CheckpointLayout, RunLayout, within
from sparktrain.state.checkpoint_history import Checkpoint
from sparktrain.state.checkpoint_parts import Shard, StoredPart
from sparktrain.store.base import PIECE_BYTES, Store
from sparktrain.store.folder_removal import remove
from sparktrain.store.parallel import CheckCancelled, spread

VERSION = 1
PARTS_VERSION = 2
"""Of a manifest that names the shards of several members, which older versions look for in one place."""
THREADS = 4
"""How many files of a checkpoint are written or read concurrently; each needs a few `PIECE_BYTES` of memory."""
MANIFEST = "manifest.json"
"""The manifest's name beside its shards on a local disk. No shard may have this name."""

_DIGEST = re.compile("[0-9a-f]{64}")
_FILE = re.compile(
    r"(?P<folder>.*/gen-(?P<number>\d+)(?:-restart-\d+)?)/(?:manifest-(?P<manifest>\d+)|data/(?P<data>\d+)-.+)"
)


class CheckpointManifest(Struct, frozen=True):
    """The content and origin of a checkpoint."""

    version: int
    run: RunId
    trial: TrialId
    generation: Generation
    step: int
    parent: str
    """Digest of the manifest of the previous acknowledged checkpoint, or empty."""
    data: str
    """Path prefix of the shards; a dot and the shard's name follow."""
    shards: tuple[Shard, ...]
    keep: int
    score: float | None
    writer: str
    """The agent that wrote it."""

    def path(self, shard: Shard) -> str:
        """The path of a shard in the store."""
        return f"{shard.data or self.data}.{shard.name}"


class Draft(Struct, frozen=True):
    """A snapshot on a local disk, to be stored as a checkpoint."""

    member: Member
    step: int
    folder: Path
    """The snapshot's folder: each file directly in it becomes a shard."""
    parent: str = ""
    keep: int = 2
    score: float | None = None
    writer: str = ""


class Listed(Struct, frozen=True):
    """A manifest in the store, acknowledged or not."""

    manifest: str
    generation: Generation
    step: int
    size_bytes: int
    problem: str = ""
    """Why the manifest cannot be read; shards are not checked."""


def write(
    store: Store, layout: RunLayout, draft: Draft, check: Callable[[], None] = lambda: None, threads: int = THREADS
) -> Checkpoint:
    """Store the draft as a checkpoint. Its manifest also goes to the draft's folder, which then is a cache for `fetch`.

    Blocks on the store, which writes and reads all of the data. The chief's agent calls it. Each thread calls `check`
    before each operation that changes the store; what it raises ends the attempt. Raises CheckpointError when another
    checkpoint of this step and generation exists, or there is nothing to write: a retry is useless. Any other OSError
    may be transient; a retry uses fresh names, and detects when this attempt has stored its manifest after all.
    """
    return commit(store, layout, draft, [write_part(store, layout, draft, check, threads)], check)


def write_part(
    store: Store, layout: RunLayout, draft: Draft, check: Callable[[], None] = lambda: None, threads: int = THREADS
) -> StoredPart:
    """Store the draft's files, which belong to no checkpoint until `commit` names them. Blocks and raises as `write`.

    The agent of each member that writes a part of the checkpoint calls it.
    """
    place = _place(layout, draft.member)
    # A name of its own for each attempt: what a late one still writes is in no manifest.
    attempt = uuid4().hex
    data = place.data(draft.step, attempt)
    files = sorted(path for path in draft.folder.iterdir() if path.name != MANIFEST)
    if not files:
        raise CheckpointError(f"snapshot {draft.folder} of step {draft.step} has no files: a checkpoint needs one")

    def put(file: Path, check_cancelled: CheckCancelled) -> Shard:
        def check_all() -> None:
            check_cancelled()
            check()

        return _put_shard(store, f"{data}.{file.name}", file, check_all)

    return StoredPart(attempt, tuple(spread(put, files, threads)))


def commit(
    store: Store, layout: RunLayout, draft: Draft, parts: Sequence[StoredPart], check: Callable[[], None] = lambda: None
) -> Checkpoint:
    """Store the manifest that names the shards of all `parts`, the chief's first. Blocks and raises as `write`.

    It also goes to the draft's folder. The chief's agent calls it.
    """
    place = _place(layout, draft.member)
    chief, *others = parts
    shards = list(chief.shards)
    for part in others:
        data = place.data(draft.step, part.attempt)
        shards += [replace(shard, data=data) for shard in part.shards]
    manifest = _manifest(draft, place.data(draft.step, chief.attempt), tuple(shards))
    path = place.manifest(draft.step)
    if problem := _shard_problem(path, manifest):
        raise CheckpointError(f"the parts of step {draft.step} make no checkpoint: {problem}")
    check()
    content = _publish(store, path, manifest)
    (draft.folder / MANIFEST).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    return Checkpoint(draft.member.generation, draft.step, path, digest, draft.keep, draft.score)


def placed(layout: RunLayout, member: Member, reported: Checkpoint) -> Checkpoint | None:
    """The checkpoint that an agent reports for `member`, at the only path that is valid for it.

    The coordinator deletes and restores by this path, and agents name local folders by the digest, but both come from
    another process. None when step or digest is invalid.
    """
    if reported.step < 0 or not _DIGEST.fullmatch(reported.digest):
        return None
    return replace(reported, manifest=_place(layout, member).manifest(reported.step))


def _place(layout: RunLayout, member: Member) -> CheckpointLayout:
    return layout.generation(member.trial, member.generation, member.incarnation)


def fetch(
    store: Store, checkpoint: Checkpoint, folder: Path, cache: Path | None = None, threads: int = THREADS
) -> None:
    """Fetch the checkpoint's files and manifest into the new local `folder`, and verify each byte.

    `cache` may be a folder with some or all of these files: those with the right digest are linked instead of read from
    the store. Blocks. Every agent of a gang that resumes calls it. Raises CheckpointError with the place when the
    checkpoint is corrupt; any other OSError when the store or the local disk fails. Leaves no folder when it raises.
    """
    folder.mkdir(parents=True)
    try:
        content = _manifest_content(store, checkpoint, cache)
        (folder / MANIFEST).write_bytes(content)
        manifest = _decode(store, checkpoint, content)

        def fetch_shard(shard: Shard, check_cancelled: CheckCancelled) -> None:
            if cache is None or not _link(cache / shard.name, folder / shard.name, shard):
                with (folder / shard.name).open("xb") as file:
                    for piece in _fetched(store, checkpoint, manifest.path(shard), shard):
                        check_cancelled()
                        file.write(piece)

        spread(fetch_shard, manifest.shards, threads)
    except BaseException:
        remove(folder)
        raise


def delete(store: Store, checkpoint: Checkpoint) -> None:
    """Delete a checkpoint and the files of failed attempts to store it: the manifest first, so that none is incomplete.

    Blocks. Only the coordinator calls it, for what `CheckpointHistory.acknowledge` has returned. Raises OSError when
    the store fails: call it again.
    """
    store.delete(checkpoint.manifest)
    folder = _folder(checkpoint.manifest)
    # By listing and not by the manifest: attempts that failed have left shards of other names.
    for path in store.list(f"{folder}/data"):
        if _step(path) == checkpoint.step:
            store.delete(path)


def collect_garbage(
    store: Store, layout: RunLayout, trial: TrialId, retained: Iterable[Checkpoint], before: Generation
) -> None:
    """Delete what failed and late writers of generations before `before` left, except for `retained`.

    Blocks. Only the coordinator calls it, once those generations have ended. Raises OSError when the store fails.
    """
    retained_steps = {(_folder(checkpoint.manifest), checkpoint.step) for checkpoint in retained}
    files = [(match, path) for path in store.list(layout.checkpoints(trial)) if (match := _FILE.fullmatch(path))]
    doomed = [
        (match["manifest"] is None, path)
        for match, path in files
        if int(match["number"]) < before and (match["folder"], _step(path)) not in retained_steps
    ]
    for _, path in sorted(doomed):  # manifests come first
        # A file of the user, or one behind a link, may have such a name too: only what the layout knows is deleted.
        if layout.owns(path) and store.way_out(path, layout.path) is None:
            store.delete(path)


def listed(store: Store, layout: RunLayout, trial: TrialId) -> list[Listed]:
    """List all manifests of a trial for people, by generation and step. Blocks. Raises OSError."""
    entries = []
    for path in store.list(layout.checkpoints(trial)):
        match = _FILE.fullmatch(path)
        if match is None or match["manifest"] is None:
            continue
        size = 0
        problem = ""
        try:
            size = sum(shard.size for shard in from_json(store.read(path), CheckpointManifest).shards)
        except msgspec.MsgspecError as error:
            problem = f"not a manifest: {error}"
        entries.append(Listed(path, Generation(int(match["number"])), int(match["manifest"]), size, problem))
    return sorted(entries, key=lambda entry: (entry.generation, entry.step))


def manifest_of(store: Store, checkpoint: Checkpoint) -> CheckpointManifest:
    """The manifest of an acknowledged checkpoint. Blocks.

    Raises CheckpointError when it is corrupt, and any other OSError when the store fails.
    """
    return _decode(store, checkpoint, _manifest_content(store, checkpoint, None))


def files_of(checkpoint: Checkpoint, manifest: CheckpointManifest) -> list[str]:
    """The paths of all files of a checkpoint, the manifest first."""
    return [checkpoint.manifest, *(manifest.path(shard) for shard in manifest.shards)]


def verified(store: Store, checkpoint: Checkpoint, manifest: CheckpointManifest, fast: bool = False) -> Iterator[int]:
    """Read and verify the shards, or only their sizes with `fast`; yields the number of bytes of each piece. Blocks.

    Raises CheckpointError for the first corrupt shard, and any other OSError when the store fails.
    """
    for shard in manifest.shards:
        path = manifest.path(shard)
        if fast:
            _check_size(store, checkpoint, path, shard)
            yield shard.size
        else:
            yield from (len(piece) for piece in _fetched(store, checkpoint, path, shard))


def left_over(store: Store, layout: RunLayout, trial: TrialId, retained: Iterable[Checkpoint]) -> list[str]:
    """Files of the trial that belong to no checkpoint of `retained`, manifests first. Blocks. Raises OSError.

    When a manifest cannot be read, all files with its folder and step count as its own.
    """
    named = set()
    unknown = set()
    for checkpoint in retained:
        named.add(checkpoint.manifest)
        try:
            named.update(files_of(checkpoint, manifest_of(store, checkpoint)))
        except CheckpointError:
            unknown.add((_folder(checkpoint.manifest), checkpoint.step))
    leftovers = []
    for path in store.list(layout.checkpoints(trial)):
        match = _FILE.fullmatch(path)
        if match is None or path in named or (match["folder"], _step(path)) in unknown:
            continue
        leftovers.append((match["manifest"] is None, path))
    return [path for _, path in sorted(leftovers)]


# ---- writing


def _put_shard(store: Store, path: str, file: Path, check: Callable[[], None]) -> Shard:
    """Write a file and read it back; `check` raises when the attempt must end."""
    check()
    new_file = store.create(path)
    try:
        with file.open("rb", buffering=0) as source:
            while piece := source.read(PIECE_BYTES):
                check()
                new_file.write(piece)
        check()
        written = new_file.publish()
    finally:
        new_file.discard()
    shard = Shard(file.name, written.size, written.sha256)
    try:
        for _ in _verified(store, path, shard):
            check()
    except CheckpointError as error:
        raise OSError(errno.EIO, f"{store.where(path)} was written, but {error}") from error
    return shard


def _manifest(draft: Draft, data: str, shards: tuple[Shard, ...]) -> CheckpointManifest:
    member = draft.member
    return CheckpointManifest(
        version=PARTS_VERSION if any(shard.data for shard in shards) else VERSION,
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


def _publish(store: Store, path: str, manifest: CheckpointManifest) -> bytes:
    """Put the manifest at `path`, and return its content: perhaps from an earlier attempt with a lost answer."""
    content = msgspec.json.encode(manifest)
    failed = None
    try:
        store.put_if_absent(path, content)
    except OSError as error:  # it may have taken effect all the same
        failed = error
    try:
        stored = store.read(path)
    except FileNotFoundError as error:
        raise failed or OSError(errno.EIO, f"{store.where(path)} was written, but is missing") from error
    # Two chiefs of one name exist only when one was replaced, and the acknowledged digest decides which one counts.
    if stored != content and not _is_same(stored, manifest):
        raise CheckpointError(
            f"checkpoint {store.where(path)} exists already with other content: another chief has written it, "
            "and this one must have been replaced; it ends"
        )
    return stored


def _is_same(content: bytes, manifest: CheckpointManifest) -> bool:
    """Whether a manifest is from an earlier attempt to write this one: only the prefix of the shards differs."""
    try:
        stored_manifest = from_json(content, CheckpointManifest)
    except msgspec.MsgspecError:
        return False
    return msgspec.structs.replace(stored_manifest, data=manifest.data) == manifest


# ---- reading


def _manifest_content(store: Store, checkpoint: Checkpoint, cache: Path | None) -> bytes:
    if cache is not None:
        content = _cached(cache / MANIFEST)
        if hashlib.sha256(content).hexdigest() == checkpoint.digest:
            return content
    try:
        content = store.read(checkpoint.manifest)
    except FileNotFoundError as error:
        raise _corrupt(store, checkpoint, "its manifest is missing") from error
    if (digest := hashlib.sha256(content).hexdigest()) != checkpoint.digest:
        sizes = f"its manifest ({len(content)} bytes) has SHA-256 {digest}"
        raise _corrupt(store, checkpoint, f"{sizes}, and {checkpoint.digest} was acknowledged")
    return content


def _decode(store: Store, checkpoint: Checkpoint, content: bytes) -> CheckpointManifest:
    """Decode a manifest, and check its version, its checkpoint, and that its names stay in their folder."""
    try:
        manifest = from_json(content, CheckpointManifest)
    except msgspec.MsgspecError as error:
        raise _corrupt(store, checkpoint, f"its manifest is invalid: {error}") from error
    if manifest.version not in (VERSION, PARTS_VERSION):
        readable = f"{VERSION} and {PARTS_VERSION}"
        problem = f"its manifest has version {manifest.version}, and this sparktrain reads versions {readable}"
        raise _corrupt(store, checkpoint, problem)
    if (manifest.generation, manifest.step) != (checkpoint.generation, checkpoint.step):
        problem = f"its manifest is for generation {manifest.generation}, step {manifest.step}"
        raise _corrupt(store, checkpoint, problem)
    manifest = _placed_manifest(manifest, checkpoint.manifest.partition("/")[0])
    if problem := _shard_problem(checkpoint.manifest, manifest):
        raise _corrupt(store, checkpoint, f"its manifest has {problem}")
    return manifest


def _placed_manifest(manifest: CheckpointManifest, run: str) -> CheckpointManifest:
    """The manifest with its shards in the folder `run`, where the run directory had another name at the time."""
    shards = tuple(replace(shard, data=within(run, shard.data)) for shard in manifest.shards)
    return replace(manifest, data=within(run, manifest.data), shards=shards)


def _shard_problem(path: str, manifest: CheckpointManifest) -> str:
    """What is wrong with the places of the shards of the manifest at `path`; empty where nothing is."""
    # A manifest comes from another process: one that led to another trial's folder would restore that trial's weights.
    folder = f"{_folder(path)}/data/"
    prefixes = {manifest.data, *(shard.data for shard in manifest.shards if shard.data)}
    for data in sorted(prefixes):
        if not data.startswith(folder) or "/" in data.removeprefix(folder):
            return f"its shards in {data!r}, where others write"
    names = set[str]()
    for shard in manifest.shards:
        if shard.name in ("", ".", "..", MANIFEST) or "/" in shard.name or "\0" in shard.name:
            return f"a shard of the name {shard.name!r}"
        if shard.name in names:
            return f"two shards of the name {shard.name!r}"
        names.add(shard.name)
    return ""


def _fetched(store: Store, checkpoint: Checkpoint, path: str, shard: Shard) -> Iterator[bytes]:
    try:
        yield from _verified(store, path, shard)
    except CheckpointError as error:
        raise _corrupt(store, checkpoint, f"shard {shard.name} {error}") from error


def _verified(store: Store, path: str, shard: Shard) -> Iterator[bytes]:
    """The shard's pieces. Raises CheckpointError, after the last one at the latest, when their digest differs."""
    digest = hashlib.sha256()
    size = 0
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
        raise _corrupt(store, checkpoint, f"shard {shard.name} is missing") from error
    if size != shard.size:
        raise _corrupt(store, checkpoint, f"shard {shard.name} has {size} of {shard.size} bytes")


def _link(source: Path, target: Path, shard: Shard) -> bool:
    """Hard-link `source` to `target` if it is the shard and can be read: whether it did."""
    try:
        if not source.is_file() or source.stat().st_size != shard.size:
            return False
        os.link(source, target)
        with target.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == shard.sha256:
                return True
    except OSError:  # the disk fails, or its files have changed: the store has the shard too
        pass
    target.unlink(missing_ok=True)
    return False


def _cached(manifest: Path) -> bytes:
    """The content of a local copy of a manifest; empty when it cannot be read."""
    try:
        return manifest.read_bytes()
    except OSError:
        return b""


def _corrupt(store: Store, checkpoint: Checkpoint, problem: str) -> CheckpointError:
    where = f"checkpoint {store.where(checkpoint.manifest)} of step {checkpoint.step}"
    return CheckpointError(f"{where} is corrupt: {problem}; the trial can resume from an older checkpoint")


def _folder(manifest: str) -> str:
    return manifest.rpartition("/")[0]


def _step(path: str) -> int | None:
    match = _FILE.fullmatch(path)
    return int(match["manifest"] or match["data"]) if match else None
