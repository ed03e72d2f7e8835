"""Monitors of laws L4 and L5: no key and IV twice, and no use of a key after the visit of the holder that saw it."""

from __future__ import annotations

from functools import lru_cache

from shared.canonical import sha256
from shared.crypto.schedule import KEY_SLOTS, legacy_rotate
from shared.names import holder_port
from shared.wire import gpu
from tests.laws.attacks import ATTACKER
from tests.laws.case import Case, Checks
from tests.laws.witness import LifeBegan, Ran, Shown, Wiped
from tests.world.world_recorder import GPU, Opened, Sealed

RATCHET_STEPS = 64


def law_4_no_key_and_iv_twice(case: Case) -> Checks:
    """Over all parties, directions and lives nobody seals twice under one key and IV, and the GPU accepts none twice. (Comparing a
    repeat with what was accepted has no effect; a checkpoint at rest may be restored more than once.)"""
    check, sealed, opened = Checks(), set[tuple[bytes, bytes]](), set[tuple[bytes, bytes]]()
    for event in case.timeline:
        match event:
            case Sealed(by, key, iv) if by != ATTACKER:
                check((key, iv) not in sealed, f"{by} sealed again under key {_name(key)} and IV {iv.hex()}")
                sealed.add((key, iv))
            case Opened(by, key, iv, repeat=False, at_rest=False) if by == GPU:
                check((key, iv) not in opened, f"the GPU accepted again under key {_name(key)} and IV {iv.hex()}")
                opened.add((key, iv))
    return check


def law_5_a_shown_key_ends_with_its_visit(case: Case) -> Checks:
    """A key that a holder ever saw opens nothing in the GPU once its epoch is fenced, is sealed under by nobody but that holder and not
    after the holder has a newer one, belongs to one epoch, and leads to no other key that anybody uses."""
    check = Checks()
    shown: dict[bytes, Shown] = {}
    newest: dict[str, bytes] = {}
    over: set[bytes] = set()
    for event in case.timeline:
        match event:
            case Shown(key, grant):
                first = shown.setdefault(key, event)
                check(first.grant.epoch == grant.epoch, f"{grant.holder} was shown the key of an earlier visit again")
                newest[grant.holder] = key
            case Wiped() | LifeBegan():
                over |= set(shown)
            case Ran(command=gpu.OpenEpoch(kills=kills), refused=None):
                over |= {key for key, seen in shown.items() if seen.grant.epoch in kills}
            case Opened(by, key) if key in shown:
                grant = shown[key].grant
                check(key not in over, f"{by} opened a record under the key of visit {grant.visit} after it was fenced")
            case Sealed(by, key) if key in shown and by != ATTACKER:
                holder = shown[key].grant.holder
                check(by == holder_port(holder), f"{by} sealed under a key that {holder} was shown")
                check(newest[holder] == key, f"{holder} sealed under the key of an earlier visit")
    for key in shown:
        heirs = [_name(heir) for heir in _heirs(case.witness.keys[key]) if heir in case.witness.keys]
        check(not heirs, f"from the key of visit {shown[key].grant.visit} its holder can make {heirs}")
    return check


@lru_cache(maxsize=512)
def _heirs(key: bytes) -> tuple[bytes, ...]:
    """Hashes of what a holder gets from a key by the stock driver's rotation, step after step, under any label (attack H10)."""
    heirs = []
    for label in KEY_SLOTS:
        heir = key
        for _ in range(RATCHET_STEPS):
            heir = legacy_rotate(heir, label)
            heirs.append(sha256(heir))
    return tuple(heirs)


def _name(key: bytes) -> str:
    return key.hex()[:12]
