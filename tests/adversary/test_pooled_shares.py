"""C06 at its upper bound: who has all that shares could ever give opens checkpoints, and of all recorded visits nothing.

Recovery shares do not exist yet. All of them together could give no more than the two secrets that an orchestrator keeps at rest: its
session's checkpoint key and resume secret.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from gpu_agent.unit import GpuUnit
from gput.local.attacks.hostile_holder import keep_keys
from orchestrator.gpu_session.checkpoints import _read_parts
from orchestrator.gpu_session.sealed import SessionSecrets
from shared.canonical import cbor_bytes
from shared.claims.visit import Grant
from shared.crypto import schedule
from shared.crypto.aead import OpeningChannel, at_rest_open
from shared.crypto.secret import Secret
from shared.crypto.visit_key import VisitKey
from shared.errors import VerificationFailed
from shared.names import TravelMode
from shared.wire.copy import copy_context, parse_record
from tests.adversary.conftest import PAIR
from tests.adversary.platform import record
from tests.adversary.rows import attack
from tests.world.world import NewWorld, World

LIVES, GENERATIONS = range(1, 4), 8
STEP_BYTES = 8
CLOSED = "stopped: at the upper bound (checkpoint key and resume secret in one hand): no visit key hangs on what is kept at rest"


@dataclass(frozen=True)
class Visit:
    """A recorded one. `keys`: what its holder had, for comparison; IV mask and counter are given away for nothing."""

    grant: Grant
    keys: list[VisitKey]
    records: list[bytes]

    def opens(self, key: bytes) -> bool:
        """Whether a key opens any of its records."""
        for body in self.records:
            header, raw, sealed = parse_record(body)
            true = self.keys[-1]
            channel = OpeningChannel(key, label="thief", iv_mask=true.iv_mask, channel_counter=true.channel_counter)
            channel.counter = header.index
            try:
                channel.open(sealed, raw + copy_context(self.grant))
            except VerificationFailed:
                continue
            return True
        return False


def guesses(secrets: SessionSecrets, visit: Visit, names: list[str]) -> Iterator[bytes]:
    """Every key that the schedule, or the stock driver's rotation, makes of the two secrets for this visit."""
    grant = visit.grant
    context = schedule.VisitContext(
        grant.session, grant.epoch, grant.holder, grant.region, bytes.fromhex(grant.recipient)
    )
    for base in (secrets.resume.reveal(), secrets.checkpoint.reveal()):
        roots = [base, schedule.resume_secret(base, grant.session)]
        roots += [schedule.checkpoint_key(base, name) for name in names]
        roots += [schedule.root_key(base, life) for life in LIVES]
        roots += [schedule.slot_key(base, label) for label in schedule.KEY_SLOTS]
        for root in roots:
            drawn = schedule.draw_epoch(root, grant.epoch, bytes(32), bytes(32))
            for secret in (root, *drawn):
                yield secret
                yield schedule.visit_key(secret, context)
                for _ in range(GENERATIONS):
                    secret = schedule.legacy_rotate(secret, "Lce02_h2d_user")
                    yield secret


def recorded_visits(world: World, kept: list[tuple[Grant, VisitKey]]) -> list[Visit]:
    visits: dict[int, Visit] = {}
    for grant, key in kept:
        visits.setdefault(grant.epoch, Visit(grant, [], [])).keys.append(key)
    for call in (e.call for e in world.wire.transcript if e.status == 200 and record(e.call)):
        visits[parse_record(call.body)[0].epoch].records.append(call.body)
    return [visit for visit in visits.values() if visit.records]


def opened_checkpoint(world: World, session: str, name: str, secret: Secret) -> bytes:
    """Model and optimiser state, as the newest checkpoint on disk holds them."""
    key, found = Secret(schedule.checkpoint_key(secret.reveal(), name)), b""
    parts = list(
        _read_parts(world.folder / "orchestrator" / "sessions" / session / "checkpoints" / f"{name}.sealed", 1 << 62)
    )
    total = sum(length for _, length, _ in parts)
    for chunk in (chunk for _, _, chunks in parts for chunk in chunks):
        start = len(found)
        aad = cbor_bytes(["gput/checkpoint", name, start, total])
        found += at_rest_open(key, f"{name}#{start >> 20}", chunk, aad)[STEP_BYTES:]
    return found


@attack("C06", scoped=CLOSED, direct=CLOSED, paper=CLOSED)
@pytest.mark.parametrize(
    "mode", [mode if mode is TravelMode.SCOPED else pytest.param(mode, marks=pytest.mark.slow) for mode in TravelMode]
)
async def test_all_that_shares_could_give_opens_checkpoints_and_no_visit(
    mode: TravelMode, new_world: NewWorld, unit: GpuUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[tuple[Grant, VisitKey]] = []
    keep_keys(lambda grant, key: kept.append((grant, key)), monkeypatch.setattr)
    async with new_world(holders=PAIR) as world:
        session = await world.submit(travel_mode=mode, rounds=20)
        await world.until(session, lambda view: view["visits_closed"] >= 3)
        await world.owner.act(session, "pause")
        await world.until(
            session, lambda view: view["phase"] == "PAUSED"
        )  # the committed model is in the newest checkpoint
        app = world["orchestrator"].app
        assert app is not None
        house = app.state.orchestrator.house
        secrets = await house.sealed(session).load()
        names = sorted(path.stem for path in (house.folder(session) / "checkpoints").glob("*.sealed"))
        committed = unit.device._state.model.committed_copy
        held = bytes(unit.device._hbm.view(committed.address, committed.length))
        await world.owner.act(session, "cancel")
        await world.finish(session)
        checkpoints = [opened_checkpoint(world, session, name, secrets.checkpoint) for name in names]
        assert any(opened == held[: len(opened)] for opened in checkpoints), "the checkpoint key opens checkpoints"
        visits = recorded_visits(world, kept)
    assert len(visits) >= 3
    for visit in visits:
        assert visit.opens(visit.keys[-1].key), "or the thief's tools would show nothing"
        tried = set(guesses(secrets, visit, names))
        assert len(tried) > 1000
        assert not any(visit.opens(key) for key in tried)
