"""Commands that move the committed model out and in: checkpoint, restore, export. Knows sealed chunks; no frame, no file.

A checkpoint is model ‖ optimiser in chunks of CHUNK bytes. Each is sealed on its own under the checkpoint's key, by name and
index; its plaintext begins with the global step (u64, little-endian), so that a restore knows where training stands, and where training is
private with the secret of its noise (32 bytes), so that what is repeated after a reset is repeated with the same noise.

Of what leaves in parts the first one looks whether the committed copy still is what it was, and has it mended, before it is read; the last
one looks once more behind all reading: so of what was let go of whole no change was missed.
"""

from __future__ import annotations

import struct
from typing import Final

from gpu_agent.hardware.bulk import Bulk
from gpu_agent.hardware.state import NOISE_BYTES, GpuState
from shared.canonical import cbor_bytes, sha256
from shared.claims.layout import require_named
from shared.crypto.aead import at_rest_open, at_rest_seal
from shared.crypto.secret import Secret
from shared.errors import BadRequest, ProtocolViolation
from shared.wire.gpu import MAX_BULK_RECORD, Checkpoint, Export, Restore
from shared.wire.gpu_answers import CheckpointPart, Committed, Done

CHUNK: Final = 1024 * 1024
_STEP: Final = struct.Struct("<Q")


def checkpoint(state: GpuState, command: Checkpoint, bulk: Bulk) -> CheckpointPart:
    """Seal chunks of the committed state.

    Raises:
        ProtocolViolation, BadRequest: not these chunks under this key. VerificationFailed: the committed copy is not what was committed.
    """
    model = state.model
    if command.offset == 0:
        model.mend_kept()
    digests, total = model.named(), model.committed_bytes
    offset, length = command.offset, min(command.length, total - command.offset)
    if length < 1 or offset % CHUNK or (length % CHUNK and offset + length != total):
        raise BadRequest(
            f"checkpoint parts are whole chunks of {CHUNK} bytes within {total}", code="checkpoint-misaligned"
        )
    key, noise, optimiser = Secret(command.key), state.session.noise, require_named(digests.optimiser)
    head = _STEP.pack(digests.step) + (noise.reveal() if noise is not None else b"")
    # One key and chunk name never seal two plaintexts (law L4); a plaintext is all three of these.
    sealed = digests.model, optimiser, sha256(head)
    if state.session.checkpoints.setdefault(_key_id(command), sealed) != sealed:
        raise ProtocolViolation("this checkpoint key has sealed another state", code="checkpoint-key-reused")
    chunks = [
        at_rest_seal(
            key, _name(command, start), head + model.read_committed(start, min(CHUNK, total - start)), _aad(command, start, total)
        )
        for start in range(offset, offset + length, CHUNK)
    ]  # fmt: skip
    if offset + length == total:
        model.require_kept()
    for chunk in chunks:
        bulk.give(chunk)
    return CheckpointPart(
        offset=offset, length=length, total=total, model=digests.model, optimiser=optimiser, step=digests.step
    )


def restore(state: GpuState, command: Restore, bulk: Bulk) -> Done | Committed:
    """Open sealed chunks into the committed copy; the last part makes it count."""
    records = bulk.take_records(command.records)
    model, total, key = state.model, state.model.committed_bytes, Secret(command.key)
    if command.offset % CHUNK or command.offset + command.length > total:
        raise BadRequest(
            f"checkpoint parts are whole chunks of {CHUNK} bytes within {total}", code="checkpoint-misaligned"
        )
    if command.offset == 0:
        state.session.restored = None
    start, head = command.offset, _STEP.size + (NOISE_BYTES if state.session.noise is not None else 0)
    for record in records:
        plain = at_rest_open(key, _name(command, start), record, _aad(command, start, total))
        found = (*_STEP.unpack_from(plain), plain[_STEP.size : head])
        if state.session.restored not in (None, found):
            raise BadRequest("the chunks belong to different checkpoints", code="checkpoint-mixed")
        state.session.restored = found
        model.write_committed(start, plain[head:])
        start += len(plain) - head
    if start != command.offset + command.length:
        raise BadRequest("the chunks have another length than the command states", code="bulk-mismatch")
    if not command.last:
        return Done()
    return _accept(state, command)


def _accept(state: GpuState, command: Restore) -> Committed:
    session = state.session
    if command.model is None or command.optimiser is None or session.restored is None:
        raise BadRequest("the last part of a restore names both digests", code="checkpoint-incomplete")
    step, noise = session.restored
    committed = state.model.accept_restored(command.model, command.optimiser, step).told()
    if session.noise is not None:
        session.noise = Secret(noise)
    session.restored = None
    state.ledger.settle(committed)
    return committed


def export(state: GpuState, command: Export, bulk: Bulk) -> Done:
    """The committed model's bytes, as its region lays them out (`shared.claims.layout`).

    Raises:
        ProtocolViolation: it has not so many. VerificationFailed: the committed copy is not what was committed.
    """
    plan, end = state.model.plan.model, command.offset + command.length
    if end > plan.length:
        raise ProtocolViolation(f"the model has {plan.length} bytes", code="out-of-range")
    if command.offset == 0:
        state.model.mend_kept()
    # A copy: the answer is sealed after the whole batch, and later commands of it may change the model.
    pieces = [
        bytes(state.model.read_committed(start, min(MAX_BULK_RECORD, end - start)))
        for start in range(command.offset, end, MAX_BULK_RECORD)
    ]
    # Who reads tensor by tensor never reads what follows the last one, nor one that has no bytes.
    if end >= max((one.offset + one.size_bytes for one in plan.tensors if one.size_bytes), default=0):
        state.model.require_kept()
    for piece in pieces:
        bulk.give(piece)
    return Done()


def _key_id(command: Checkpoint) -> bytes:
    return sha256(cbor_bytes(["gput/checkpoint-key", command.key, command.name]))


def _name(command: Checkpoint | Restore, start: int) -> str:
    return f"{command.name}#{start // CHUNK}"


def _aad(command: Checkpoint | Restore, start: int, total: int) -> bytes:
    return cbor_bytes(["gput/checkpoint", command.name, start, total])
