"""The system broken on purpose, one defence at a time, so that each monitor can show that it fails. Knows no monitor."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import shared.attestation.tdx_verifier
from data_holder.datasets.dataset import Dataset
from data_holder.links import GpuLink, OrchestratorLink
from data_holder.sealing import RecordSealer
from gpu_agent.hardware import commands_visit, copy_engine
from gpu_agent.hardware.bulk import Bulk
from gpu_agent.hardware.command_processor import COMMANDS
from gpu_agent.hardware.copy_engine import CopyEngine
from gpu_agent.hardware.epochs import Epochs
from gpu_agent.hardware.grants import GrantTable
from gpu_agent.hardware.hbm import HBM, PAGE, ScrubProof
from gpu_agent.hardware.model_memory import ModelMemory
from gpu_agent.hardware.state import GpuState
from orchestrator.gpu_session.life import Batch, GpuLife
from orchestrator.holders.inbox import Inboxes
from orchestrator.visits import granting, returning
from shared.attestation.gpu_policy import GpuPolicy
from shared.canonical.zeros import zeros_digest
from shared.crypto.aead import _Channel
from shared.crypto.schedule import hkdf, legacy_rotate
from shared.errors import InvalidData
from shared.names import RegionKind
from shared.service.logging import get_logger
from shared.wire import gpu, gpu_answers
from tests.laws.stage import Theatre

Sabotage = Callable[[pytest.MonkeyPatch, Theatre], None]


def fences_kill_nothing(patch: pytest.MonkeyPatch, _: Theatre) -> None:
    """The GPU says that epochs are dead, and keeps their grants and keys."""
    patch.setattr(Epochs, "kill", lambda self, epochs: [epoch for epoch in epochs if epoch in self._open])
    patch.setattr(GrantTable, "end", lambda self, epoch: self._by_epoch.get(epoch))


def scrubs_lie(patch: pytest.MonkeyPatch, _: Theatre) -> None:
    """The GPU proves a scrub that it never does (attack V11)."""
    patch.setattr(HBM, "scrub", lambda self, at, length: ScrubProof(at, length, zeros_digest(length)))


def copies_ahead_are_kept(patch: pytest.MonkeyPatch, _: Theatre) -> None:
    """What was copied ahead of a commit stays where it is when that does not come."""
    patch.setattr(ModelMemory, "forget_ahead", lambda self: None)


def gradients_are_kept(patch: pytest.MonkeyPatch, _: Theatre) -> None:
    """A scrub clears the dataset region only."""

    def scrub(state: GpuState, command: gpu.Scrub, bulk: Bulk) -> gpu_answers.Scrubbed:
        state.take_news(state.compute.destroy())
        proof = state.scrub(state.regions.get(command.region))
        return gpu_answers.Scrubbed(region=command.region, length=proof.length, digest=proof.digest.hex())

    assert COMMANDS[gpu.Scrub].handler is commands_visit.scrub
    patch.setitem(COMMANDS, gpu.Scrub, replace(COMMANDS[gpu.Scrub], handler=scrub))


def records_are_staged(patch: pytest.MonkeyPatch, _: Theatre) -> None:
    """The copy engine leaves a copy of what it decrypts in a page that no allocation covers."""
    honest = CopyEngine._write

    def write(self: CopyEngine, live: Any, header: Any, raw: bytes, sealed: memoryview) -> None:
        begin = live.received
        honest(self, live, header, raw, sealed)
        address = self._regions.get(live.grant.region).address + begin
        spare = next(at for at in range(0, self._hbm.size, PAGE) if self._hbm._is_free(at, PAGE))
        self._hbm._view[spare : spare + header.length] = self._hbm.view(address, header.length)

    patch.setattr(CopyEngine, "_write", write)


def _reordered(patch: pytest.MonkeyPatch, order: tuple[type[Any], ...]) -> None:
    """The orchestrator gives the commands of a fence in this order, leaving out what is not in it, and pretends it had not."""
    honest = GpuLife.batch

    async def batch(self: GpuLife, commands: Any, bulk: Any = (), *, behind: Any = None) -> Batch:
        if [type(command) for command in commands] != [gpu.OpenEpoch, gpu.Drain, gpu.UploadProgram, gpu.Measure]:
            return await honest(self, commands, bulk, behind=behind)
        given = sorted((c for c in commands if type(c) in order), key=lambda c: order.index(type(c)))
        answered = await honest(self, given, bulk, behind=behind)
        answers = {type(command): answer for command, answer in zip(given, answered.answers, strict=True)}
        answers.setdefault(gpu.Drain, gpu_answers.Drained(outstanding=0))
        return Batch([answers[type(command)] for command in commands], answered.bulk)

    patch.setattr(GpuLife, "batch", batch)


def verifies_before_the_fence(patch: pytest.MonkeyPatch, _: Theatre) -> None:
    _reordered(patch, (gpu.UploadProgram, gpu.Measure, gpu.OpenEpoch, gpu.Drain))


def never_drains(patch: pytest.MonkeyPatch, _: Theatre) -> None:
    _reordered(patch, (gpu.OpenEpoch, gpu.UploadProgram, gpu.Measure))


def counters_stand_still(patch: pytest.MonkeyPatch, _: Theatre) -> None:
    """No channel advances its message counter."""
    patch.setattr(_Channel, "_take", lambda self, counter, size: None)


def _visit_keys(patch: pytest.MonkeyPatch, key: Callable[[int], bytes]) -> None:
    for room in (granting, copy_engine):
        patch.setattr(room, "visit_key", lambda _secret, context: key(context.epoch))


def one_key_for_all_visits(patch: pytest.MonkeyPatch, _: Theatre) -> None:
    _visit_keys(patch, lambda epoch: hkdf(b"the same every time", b"", 32))


def keys_are_rotated_as_in_the_stock_driver(patch: pytest.MonkeyPatch, _: Theatre) -> None:
    """Each visit's key is made from the one before (attack H10)."""
    keys: dict[int, bytes] = {}

    def key(epoch: int) -> bytes:
        before = keys[max(keys)] if keys else None
        fresh = hkdf(b"the first one", b"", 32) if before is None else legacy_rotate(before, "Lce02_h2d_user")
        return keys.setdefault(epoch, fresh)

    _visit_keys(patch, key)


def _reading(patch: pytest.MonkeyPatch, then: Callable[[bytes], None]) -> None:
    honest = RecordSealer._read

    def read(self: RecordSealer) -> tuple[memoryview, bool]:
        chunk, as_it_lies = honest(self)
        then(bytes(chunk))
        return chunk, as_it_lies

    patch.setattr(RecordSealer, "_read", read)


def records_are_logged(patch: pytest.MonkeyPatch, _: Theatre) -> None:
    _reading(patch, lambda chunk: get_logger("holder").debug("read", head=chunk[:64].hex()))


def an_error_quotes_a_value(patch: pytest.MonkeyPatch, theatre: Theatre) -> None:
    """Once, a holder refuses its own data with a message that says which value it does not like."""
    quoted: list[bytes] = []

    def refuse(chunk: bytes) -> None:
        if not quoted:
            quoted.append(chunk)
            values = [str(value) for value in np.frombuffer(chunk[:64], "<f4")]
            raise InvalidData(f"the features {values} are out of range")

    _reading(patch, refuse)


def records_are_cached_on_disk(patch: pytest.MonkeyPatch, theatre: Theatre) -> None:
    """In base64, among the services' files."""

    def keep(chunk: bytes) -> None:
        with tempfile.NamedTemporaryFile(dir=theatre.folder, delete=False) as file:
            file.write(base64.b64encode(chunk))

    _reading(patch, keep)


def read_back_is_not_compared(patch: pytest.MonkeyPatch, _: Theatre) -> None:
    patch.setattr(returning, "check_measured", lambda *_: None)


def roll_backs_do_nothing(patch: pytest.MonkeyPatch, _: Theatre) -> None:
    patch.setattr(ModelMemory, "roll_back", lambda self: self.require_committed())


def sealed_records_go_to_the_orchestrator_too(patch: pytest.MonkeyPatch, _: Theatre) -> None:
    copied, call = [bytes(64)], OrchestratorLink._call
    stream = GpuLink.stream

    async def streaming(
        self: GpuLink, door: str, gpu_id: str, port: str, records: Any, *rest: Any, **options: Any
    ) -> bytes:
        async def watched() -> AsyncIterator[memoryview]:
            async for record in records:
                copied.append(bytes(record[32:96]))
                yield record

        return await stream(self, door, gpu_id, port, watched(), *rest, **options)

    async def calling(self: OrchestratorLink, method: str, path: str, **options: Any) -> Any:
        options["headers"] = {**(options.get("headers") or {}), "x-trace": base64.b64encode(copied[-1]).decode()}
        return await call(self, method, path, **options)

    patch.setattr(GpuLink, "stream", streaming)
    patch.setattr(OrchestratorLink, "_call", calling)


def receipts_carry_the_model(patch: pytest.MonkeyPatch, theatre: Theatre) -> None:
    """What holders get of a visit's end has the trained model in it."""
    post, device = Inboxes.post, theatre.unit.device

    def posting(self: Inboxes, holder: str, **fields: Any) -> None:
        region = device._state.regions.only(RegionKind.MODEL)
        if fields["kind"] == "receipt" and region is not None:
            fields["receipt"] = bytes(device._hbm.view(region.address, region.length)).hex()
        post(self, holder, **fields)

    patch.setattr(Inboxes, "post", posting)


def emulation_is_believed_by_all(patch: pytest.MonkeyPatch, _: Theatre) -> None:
    """Verifiers do not look at whose root it is."""
    patch.setattr(shared.attestation.tdx_verifier, "check_root_set", lambda *_: None)
    patch.setattr(GpuPolicy, "check_root_set", lambda *_: None)


def the_device_calls_itself_hardware(patch: pytest.MonkeyPatch, theatre: Theatre) -> None:
    patch.setattr(theatre.unit.device._state, "backend", "HARDWARE")


def visit_keys_are_logged(patch: pytest.MonkeyPatch, _: Theatre) -> None:
    honest = granting.visit_key

    def visit_key(secret: bytes, context: Any) -> bytes:
        key = honest(secret, context)
        get_logger("grants").info("granted", epoch=context.epoch, under=key.hex())
        return key

    patch.setattr(granting, "visit_key", visit_key)


def records_follow_the_holders_mood(patch: pytest.MonkeyPatch, _: Theatre) -> None:
    """A holder sends other records than the visit record fixes."""
    honest = Dataset.read_slice

    def read_slice(self: Dataset, cursor: Any, offset: int, out: Any) -> None:
        honest(self, cursor.model_copy(update={"start": cursor.start + 1}), offset, out)

    patch.setattr(Dataset, "read_slice", read_slice)
