"""What happened in a world, in order: ciphers, GPU commands, copies, lives, keys shown, appraisals. Judges nothing; knows no law.

Everything is noted where it takes effect (inside the GPU, inside a holder), with images of GPU memory taken from its memory file, so that
what a monitor concludes does not rest on what a service says of itself.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest.mock import patch

import data_holder.trust
import data_holder.visits
import orchestrator.gpu_session.life
import shared.attestation.channel
from gpu_agent.hardware.command_processor import CommandProcessor
from gpu_agent.hardware.copy_engine import CopyEngine
from gpu_agent.hardware.hbm import HBM
from gpu_agent.hardware.regions import RegionTable
from gpu_agent.hardware.state import GpuState
from shared.attestation.quote import parse_quote
from shared.claims.visit import Grant
from shared.crypto.visit_key import VisitKey
from shared.errors import BadRequest, GputError
from shared.wire import gpu
from shared.wire.copy import CopyHeader, parse_record
from tests.world.world_memory import Image, Place, changed, image
from tests.world.world_recorder import Recorder, recording
from tests.world.world_wire import Call, Deliver, Wire

PICTURED = (gpu.SetReady, gpu.OpenEpoch, gpu.InstallGrant, gpu.Measure, gpu.Train, gpu.TrainTour, gpu.EndTour, gpu.Commit, gpu.RollBack,
            gpu.Restore, gpu.InitModel, gpu.Scrub)  # fmt: skip
"""Commands before and after which memory is of interest to a law."""


@dataclass(frozen=True)
class Ran:
    """A command that the GPU ran. `life`: of the keys that it came under; `refused`: the code of a refusal.

    `before` and `after` are images for PICTURED commands, `places` the regions as they were afterwards.
    """

    command: Any
    answer: Any = None
    refused: str | None = None
    life: int = 0
    places: tuple[Place, ...] = ()
    before: Image = field(default_factory=dict, repr=False)
    after: Image = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Copied:
    """A record on a holder's port. `wrote`: pages that it changed; `header` is None where it had none."""

    port: str
    header: CopyHeader | None
    refused: str | None
    places: tuple[Place, ...]
    wrote: frozenset[int]


@dataclass(frozen=True)
class Wiped:
    """The GPU destroyed all it held; `after`: what lies in memory all the same."""

    after: Image = field(repr=False)


@dataclass(frozen=True)
class LifeBegan:
    """A life of the orchestrator, from here on the only one that the GPU obeys; `after`: what it keeps from the one before."""

    life: int
    places: tuple[Place, ...]
    after: Image = field(repr=False)


@dataclass(frozen=True)
class Shown:
    """A holder has this visit key (its SHA-256) from here on."""

    key: bytes
    grant: Grant


@dataclass(frozen=True)
class Appraised:
    """Evidence was judged. `again(False)` judges it as a verifier that allows no emulation would, `allowed` as this one did."""

    what: str
    backend: str | None
    allow_emulated: bool
    roots: tuple[str, ...]
    again: Callable[[bool], Any] = field(repr=False)
    chain: str = field(default="", repr=False)


@dataclass(frozen=True)
class Tampered:
    """A test changed this page of GPU memory behind everybody's back."""

    page: int


@dataclass(frozen=True)
class Message:
    """One direction of one exchange, as it went over the wire: address and headers too. `client` and `server` name the link."""

    client: str
    server: str
    data: bytes = field(repr=False)


@dataclass
class Witness(Recorder):
    """`timeline`: all events in order. `traffic`: all that was on a wire. `kept`: visit keys, as a holder that forgets none has them."""

    traffic: list[Message] = field(default_factory=list)
    kept: list[tuple[Grant, VisitKey]] = field(default_factory=list, repr=False)
    pool: dict[bytes, bytes] = field(default_factory=dict, repr=False)

    def note(self, event: Any) -> None:
        self.timeline.append(event)

    def shown(self, visit_key: VisitKey, grant: Grant) -> None:
        """A holder has this key now, whether it ever seals under it or only agrees another one with it."""
        digest = hashlib.sha256(visit_key.key).digest()
        self.keys[digest] = visit_key.key
        self.note(Shown(digest, grant))

    def picture(self, hbm: HBM) -> Image:
        return image(hbm, self.pool)

    def watch(self, wire: Wire) -> None:
        """From here on see every call as it leaves its client, as it reaches its server if it does, and every answer."""
        deliver = wire._deliver

        async def leaving(call: Call, onwards: Deliver) -> Any:
            self._call(call)
            return await onwards(call)

        async def arriving(call: Call) -> Any:
            self._call(call)
            answer = await deliver(call)
            self._message(call, _headers(answer.headers.items()), answer.content)
            return answer

        wire.hooks.insert(0, leaving)
        wire._deliver = arriving  # type: ignore[method-assign]  # behind every hook, also those that are added later

    def _call(self, call: Call) -> None:
        self._message(call, call.url.encode(), _headers(call.headers), call.body)

    def _message(self, call: Call, *parts: bytes) -> None:
        self.traffic.append(Message(call.client, call.server, b"\n".join(parts)))

    def ran(self, kind: type[Any]) -> list[Ran]:
        """Commands of one kind that the GPU did not refuse."""
        return [e for e in self.timeline if isinstance(e, Ran) and e.refused is None and isinstance(e.command, kind)]


def _headers(pairs: Iterable[tuple[str, str]]) -> bytes:
    return "\n".join(f"{name}: {value}" for name, value in pairs).encode()


@contextmanager
def witnessing() -> Iterator[Witness]:
    """Note everything inside the block. Worlds still have to be given to `watch`."""
    witness = Witness()
    taps: list[tuple[Any, str, Callable[[Witness, Any], Any]]] = [
        (CommandProcessor, "_run", _commands), (CopyEngine, "copy", _copies), (GpuState, "_destroy", _wipes),
        (GpuState, "_begin_life", _lives), (data_holder.visits, "open_offer", _offers),
        (data_holder.visits, "agreed_visit_key", _agreements),
        (orchestrator.gpu_session.life, "verify_gpu_evidence", _gpu_appraisals),
        (data_holder.trust, "verify_gpu_evidence", _gpu_appraisals),
        (shared.attestation.channel, "verify_cvm_evidence", _cpu_appraisals),
    ]  # fmt: skip
    with recording(witness), ExitStack() as patches:
        for target, name, tap in taps:
            patches.enter_context(patch.object(target, name, tap(witness, getattr(target, name))))
        yield witness


def _commands(witness: Witness, run: Any) -> Any:
    def watched(processor: CommandProcessor, command: Any, bulk: Any) -> Any:
        state, life = processor._state, processor._channel.life if processor._channel is not None else 0
        pictured = isinstance(command, PICTURED)
        before = witness.picture(state.hbm) if pictured else {}
        try:
            answer = run(processor, command, bulk)
        except GputError as error:
            witness.note(Ran(command, None, error.code, life, _places(state.regions), before))
            raise
        after = witness.picture(state.hbm) if pictured else {}
        witness.note(Ran(command, answer, None, life, _places(state.regions), before, after))
        return answer

    return watched


def _places(regions: RegionTable) -> tuple[Place, ...]:
    return tuple(Place(r.handle, r.kind, r.address, r.length) for r in regions.all())


def _copies(witness: Witness, copy: Any) -> Any:
    def watched(engine: CopyEngine, port: str, record: Any, now: float) -> Any:
        before, refused = witness.picture(engine._hbm), None
        try:
            return copy(engine, port, record, now)
        except GputError as error:
            refused = error.code
            raise
        finally:
            wrote = frozenset(changed(before, witness.picture(engine._hbm)))
            witness.note(Copied(port, _header(record), refused, _places(engine._regions), wrote))

    return watched


def _header(record: Any) -> CopyHeader | None:
    try:
        return parse_record(record)[0]
    except BadRequest:
        return None


def _wipes(witness: Witness, destroy: Any) -> Any:
    def watched(state: GpuState) -> None:
        destroy(state)
        witness.note(Wiped(witness.picture(state.hbm)))

    return watched


def _lives(witness: Witness, begin: Any) -> Any:
    def watched(state: GpuState, life: int, export_master_secret: bytes) -> None:
        begin(state, life, export_master_secret)
        witness.note(LifeBegan(life, _places(state.regions), witness.picture(state.hbm)))

    return watched


def _offers(witness: Witness, open_offer: Any) -> Any:
    def watched(offer: Any, key: Any) -> VisitKey:
        visit_key: VisitKey = open_offer(offer, key)
        grant = offer.document.grant
        witness.kept.append((grant, visit_key))
        witness.shown(visit_key, grant)
        return visit_key

    return watched


def _agreements(witness: Witness, agree: Any) -> Any:
    def watched(visit_key: VisitKey, share: Any, grant: Grant) -> VisitKey:
        agreed: VisitKey = agree(visit_key, share, grant)
        witness.shown(agreed, grant)
        return agreed

    return watched


def _gpu_appraisals(witness: Witness, verify: Any) -> Any:
    def watched(report: bytes, chain: str, **options: Any) -> Any:
        def again(allowed: bool) -> Any:
            return verify(report, chain, **(options | {"policy": _allowing(policy, allowed)}))

        policy, result = options["policy"], verify(report, chain, **options)
        witness.note(Appraised("GPU", result.backend.value, policy.allow_emulated, policy.roots, again, chain))
        return result

    return watched


def _cpu_appraisals(witness: Witness, verify: Any) -> Any:
    def watched(evidence: Any, **options: Any) -> Any:
        trust = options["trust"]
        policy = trust.policy

        def again(allowed: bool) -> Any:
            return verify(evidence, **(options | {"trust": replace(trust, policy=_allowing(policy, allowed))}))

        result = verify(evidence, **options)
        chain = parse_quote(b64decode(evidence.quote)).signature.certification.decode()
        witness.note(
            Appraised(options["role"], result.backend.value, policy.allow_emulated, policy.roots, again, chain)
        )
        return result

    return watched


def _allowing(policy: Any, allowed: bool) -> Any:
    return replace(policy, allow_emulated=allowed)
