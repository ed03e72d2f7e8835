"""Sealed checkpoints on the untrusted disk: the GPU seals, this room stores the chunks as they are and gives them back.

File: magic ‖ parts; part = CBOR header length (u32 LE) ‖ CBOR [offset, length, [chunk lengths]] ‖ chunks. Only the GPU can open a chunk (it
alone and the orchestrator know the key), and it verifies both digests at the end, so the format needs no checksum. Two are kept,
and those one of which holds the model to be released. One that is damaged is set aside under another name, for whoever wants to know why.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from orchestrator.files import is_there, large_file, reading
from orchestrator.gpu_session.bulk import BATCH_BYTES, BATCH_RECORDS
from orchestrator.gpu_session.life import CommandRefused, GpuLife
from orchestrator.gpu_session.placement import model_state
from orchestrator.sessions.remembered import Checkpoint, ModelState
from shared.canonical import cbor_bytes, cbor_value
from shared.crypto.schedule import checkpoint_key
from shared.crypto.secret import Secret
from shared.errors import BadRequest, VerificationFailed
from shared.service.data_dir import unwritable
from shared.service.logging import get_logger
from shared.service.threads import aside
from shared.wire.gpu import MAX_BULK_RECORD, Restore
from shared.wire.gpu import Checkpoint as CheckpointCommand
from shared.wire.gpu_answers import CheckpointPart, Committed

MAGIC = b"GPUT-CHECKPOINT-1\n"
KEPT = 2
MAX_HEADER = 1 << 20
MOST = 2 * BATCH_BYTES
"""Sealed bytes of a part at most: those of a batch, and far more than what sealing adds to them."""
SET_ASIDE = ".damaged"
_REFUSED = ("tag-mismatch", "checkpoint-misaligned", "checkpoint-mixed", "bulk-mismatch", "checkpoint-digest-mismatch")
"""By which codes the GPU says that chunks are not those that it sealed, not as they were, or not of the model that they were said to be."""
_log = get_logger("orchestrator.checkpoints")


@dataclass(frozen=True)
class Sealed:
    """A checkpoint that lies on disk."""

    name: str
    total: int
    state: ModelState


class Checkpoints:
    """One session's checkpoints."""

    def __init__(self, folder: Path, secret: Secret) -> None:
        self._folder, self._secret = folder, secret

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.sealed"

    def _key(self, name: str) -> bytes:
        return checkpoint_key(self._secret.reveal(), name)

    async def write(self, life: GpuLife, name: str, validation: float | None) -> Sealed:
        """Let the GPU seal its committed state; the file appears whole or not at all. `name` is used once.

        Raises:
            Unavailable: no answer, or the disk is full. VerificationFailed: the parts do not fit together.
        """
        key, first, offset = self._key(name), None, 0
        async with large_file(self._path(name)) as file:
            file.write(MAGIC)
            while first is None or offset < first.total:
                length = BATCH_BYTES if first is None else min(BATCH_BYTES, first.total - offset)
                batch = await life.batch([CheckpointCommand(key=key, name=name, offset=offset, length=length)])
                part = batch.answer(0, CheckpointPart)
                first = first or part
                _check_part(part, first, offset)
                _write_part(file, part, batch.bulk)
                offset += part.length
        return Sealed(name, first.total, ModelState(first.model, first.optimiser, first.step, validation))

    async def restore(self, life: GpuLife, checkpoint: Checkpoint) -> ModelState:
        """Give a checkpoint back to the GPU, which verifies it; answers what it holds then.

        Raises:
            VerificationFailed: `checkpoint-damaged`: the file is not whole, or a chunk was tampered with; `checkpoint-gone`;
                `checkpoint-mismatch`: the GPU ended in another state than the journal names. CommandRefused, Unavailable.
        """
        return await restore_file(life, self._path(checkpoint.name), self._key(checkpoint.name), checkpoint)

    def usable(self, kept: list[Checkpoint]) -> Checkpoint | None:
        """The newest checkpoint of the journal whose file is there. Raises: Unavailable: the disk does not say."""
        return next((c for c in reversed(kept) if is_there(self._path(c.name))), None)

    def gone(self, kept: list[Checkpoint]) -> list[Checkpoint]:
        """Those newer than it, whose files are not: taken away, or set aside. Raises: Unavailable: the disk does not say."""
        usable = self.usable(kept)
        return kept if usable is None else kept[kept.index(usable) + 1 :]

    def set_aside(self, name: str) -> None:
        """A checkpoint that is damaged is not there any more, in this life or a later one; its file stays beside the others.

        Raises:
            Unavailable: the folder cannot be written.
        """
        path = self._path(name)
        try:
            path.rename(path.with_suffix(SET_ASIDE))
        except FileNotFoundError:
            return
        except OSError as error:
            raise unwritable(path, error) from error

    def prune(self, kept: list[Checkpoint], others: Sequence[Checkpoint] = ()) -> None:
        """Remove files that the journal does not count on any more. Only older ones than it names: of a newer one, which another
        orchestrator may have written, this journal need not know yet. `others`: what it counts on besides the newest.
        """
        names = {f"{checkpoint.name}.sealed" for checkpoint in (*kept[-KEPT:], *others)}
        try:
            newest = self._path(kept[-1].name).stat().st_mtime_ns
            found = list(self._folder.iterdir())
        except (FileNotFoundError, IndexError):
            return
        except OSError as error:
            _not_removed(self._folder, error)
            return
        for path in found:
            if path.suffix == ".sealed" and path.name not in names and not path.name.startswith("."):
                _remove_older(path, newest)


async def restore_file(life: GpuLife, path: Path, key: bytes, checkpoint: Checkpoint) -> ModelState:
    """Give the GPU the checkpoint in a file. Raises: as `Checkpoints.restore`."""
    _require_there(path, checkpoint.name)
    await aside(_require_whole, path, checkpoint.total)
    committed = None
    for offset, length, chunks in _read_parts(path, checkpoint.total):
        last = offset + length == checkpoint.total
        command = Restore(
            key=key, name=checkpoint.name, offset=offset, length=length, records=len(chunks), last=last,
            model=checkpoint.state.model if last else None, optimiser=checkpoint.state.optimiser if last else None,
        )  # fmt: skip
        with _refusal_is_damage(path):
            answer = await life.batch([command], chunks)
        committed = answer.answer(0, Committed) if last else None
    if committed is None:
        raise _damaged(path)
    if (committed.model, committed.step) != (checkpoint.state.model, checkpoint.state.step):
        raise VerificationFailed(f"Checkpoint {checkpoint.name} did not restore what it promised", code="checkpoint-mismatch",
                                 expected=checkpoint.state.model, got=committed.model)  # fmt: skip
    return model_state(committed, checkpoint.state.validation)


@contextmanager
def _refusal_is_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except CommandRefused as error:
        if error.code in _REFUSED:
            raise _damaged(path) from error
        raise


def _require_there(path: Path, name: str) -> None:
    if not is_there(path):
        raise VerificationFailed(f"Checkpoint {name} is gone from the data folder", code="checkpoint-gone")


def _require_whole(path: Path, total: int) -> None:
    """Read it to its end before the GPU hears of it: the first part is written over the model that the GPU holds, which is lost if the disk
    fails at the next one. It is read twice so, part by part: memory holds one of them, and the system what it keeps of a file.

    Raises:
        VerificationFailed, Unavailable: as `_read_parts`.
    """
    if sum(covered for _, covered, _ in _read_parts(path, total)) != total:
        raise _damaged(path)


def _remove_older(path: Path, than_ns: int) -> None:
    try:
        if path.stat().st_mtime_ns < than_ns:
            path.unlink()
    except FileNotFoundError:
        return
    except OSError as error:
        _not_removed(path, error)


def _not_removed(path: Path, error: OSError) -> None:
    """What is only in the way costs room, and no session."""
    _log.warning("not removed", path=str(path), error=error.strerror or str(error))


def _check_part(part: CheckpointPart, first: CheckpointPart, offset: int) -> None:
    same = (part.total, part.model, part.optimiser, part.step) == (
        first.total,
        first.model,
        first.optimiser,
        first.step,
    )
    if not same or part.offset != offset or part.length < 1:
        raise VerificationFailed("The GPU's checkpoint parts do not fit together", code="checkpoint-mismatch")


def _write_part(file: BinaryIO, part: CheckpointPart, chunks: list[bytes]) -> None:
    header = cbor_bytes([part.offset, part.length, [len(chunk) for chunk in chunks]])
    file.write(len(header).to_bytes(4, "little") + header)
    for chunk in chunks:
        file.write(chunk)


def _read_parts(path: Path, total: int) -> Iterator[tuple[int, int, list[bytes]]]:
    """Offset and length of each part, and its chunks: one part behind the other, up to `total` at most.

    Raises:
        VerificationFailed: `checkpoint-damaged`. Unavailable: the disk does not give them.
    """
    at = 0
    with reading(path), path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if file.read(len(MAGIC)) != MAGIC:
            raise _damaged(path)
        while raw := file.read(4):
            length = int.from_bytes(raw, "little")
            if len(raw) != 4 or length > min(MAX_HEADER, size):
                raise _damaged(path)
            offset, covered, lengths = _header(file.read(length), path)
            fits = offset == at and 1 <= covered <= total - at
            if not fits or not _one_batch(lengths) or sum(lengths) > size - file.tell():
                raise _damaged(path)
            yield offset, covered, [file.read(n) for n in lengths]
            at += covered


def _one_batch(lengths: list[int]) -> bool:
    """Whether chunks of these lengths are what one batch brings: what a damaged header says is neither read into memory nor sent."""
    return (
        1 <= len(lengths) <= BATCH_RECORDS and all(1 <= n <= MAX_BULK_RECORD for n in lengths) and sum(lengths) <= MOST
    )


def _header(data: bytes, path: Path) -> tuple[int, int, list[int]]:
    try:
        match cbor_value(data):
            case [int(offset), int(covered), list(lengths)] if all(isinstance(n, int) for n in lengths):
                return offset, covered, lengths
    except BadRequest:
        pass  # the disk is the platform's, and nobody's request is at fault
    raise _damaged(path)


def _damaged(path: Path) -> VerificationFailed:
    return VerificationFailed(f"{path.name} is damaged", code="checkpoint-damaged")
