"""A chain of a party's own rotations, judged from what an orchestrator lists: nothing in the list counts but the older keys' signatures."""

from __future__ import annotations

from typing import Any

import pytest

from shared.attestation.key_rotations import came_by_rotation, moved_keys, sign_rotation
from shared.claims.manifest import Contributor, Predecessor
from shared.crypto.signing import PartyKey
from tests.orchestrator.orchestrator_samples import manifest

KEYS = [PartyKey.generate(lambda n, seed=seed: bytes([seed]) * n) for seed in range(1, 5)]
FIRST, SECOND, THIRD, OTHER = KEYS


def row(key: PartyKey, previous: PartyKey | None = None, **signers: Any) -> dict[str, Any]:
    """One entry as listed; `signers`: who says so, if not the party's own keys."""
    said = None
    if previous is not None:
        who = {"party": "city", "old": previous, "new": key} | signers
        said = sign_rotation(who["party"], who["old"], who["new"], 1795).model_dump(mode="json")
    before = None if previous is None else previous.fingerprint
    return {"key": key.fingerprint, "public_key": key.public.hex(), "previous": before, "statement": said}


SOUND = [row(FIRST), row(SECOND, FIRST), row(THIRD, SECOND)]
FORGED: dict[str, list[dict[str, Any]]] = {
    "nothing": [],
    "the owner's word": [row(FIRST), row(SECOND, FIRST), row(THIRD, SECOND) | {"statement": None}],
    "the owner's word in the middle": [row(FIRST), row(SECOND, FIRST) | {"statement": None}, row(THIRD, SECOND)],
    "a link that is not listed": [row(FIRST), row(THIRD, SECOND)],
    "signed by another key": [row(FIRST), row(SECOND, FIRST, old=OTHER), row(THIRD, SECOND)],
    "about another key": [row(FIRST), row(SECOND, FIRST, new=OTHER), row(THIRD, SECOND)],
    "another party's statement": [row(FIRST), row(SECOND, FIRST, party="north"), row(THIRD, SECOND)],
    "a circle": [row(FIRST), row(SECOND, THIRD), row(THIRD, SECOND)],
    "another public key under the old fingerprint": [
        row(FIRST) | {"public_key": OTHER.public.hex()}, row(SECOND, FIRST, old=OTHER), row(THIRD, SECOND),
    ],
    "no hexadecimal": [row(FIRST) | {"public_key": "no"}, row(SECOND, FIRST), row(THIRD, SECOND)],
}  # fmt: skip


def test_a_chain_of_own_signatures_proves_it() -> None:
    assert came_by_rotation(SOUND, "city", THIRD.fingerprint, FIRST.fingerprint)
    assert came_by_rotation(reversed(SOUND), "city", SECOND.fingerprint, FIRST.fingerprint)
    assert not came_by_rotation(SOUND, "city", FIRST.fingerprint, THIRD.fingerprint), "backwards it proves nothing"
    assert not came_by_rotation(SOUND, "north", THIRD.fingerprint, FIRST.fingerprint)


@pytest.mark.parametrize("case", FORGED)
def test_nothing_else_does(case: str) -> None:
    assert not came_by_rotation(FORGED[case], "city", THIRD.fingerprint, FIRST.fingerprint)


def test_whose_keys_moved_is_read_off_roster_and_contributors() -> None:
    """A contributor counts by the key that it contributed with, whoever has its name in the roster."""
    old = manifest()
    keys = {entry.holder: entry.key for entry in old.roster}
    says = Predecessor(
        session="s_aaaaaaaaaaaaaaaa", manifest=old.digest().hex(), model="1" * 64, optimiser="2" * 64, step=6, log_size=3,
        log_root="3" * 64, contributors=(Contributor(holder="h1", key=FIRST.fingerprint, records=8),),
    )  # fmt: skip
    assert moved_keys(old, says, keys) == {"h1": FIRST.fingerprint}
    assert moved_keys(old, says, {"h1": FIRST.fingerprint, "h2": OTHER.fingerprint, "h7": OTHER.fingerprint}) == {
        "h2": keys["h2"]
    }
