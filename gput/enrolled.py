"""Which holders a session may name: who is enrolled and whose key counts. Asks nobody; knows the orchestrator's list of parties."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from gput.answers import text_of
from shared.errors import BadRequest


def enrolled_holders(parties: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Fingerprint of each holder's key, by name, where that key counts: of one whose key was revoked no roster is taken."""
    return {text_of(one, "name"): text_of(one, "key") for one in _holders(parties) if not _revoked(one)}


def revoked_holders(parties: Iterable[Mapping[str, Any]]) -> set[str]:
    """Names of the others."""
    return {text_of(one, "name") for one in _holders(parties) if _revoked(one)}


def chosen_holders(names: Sequence[str], parties: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The keys of these holders, in their order, or of all if none is named. Raises: BadRequest `party-not-enrolled`."""
    keys, revoked = enrolled_holders(parties), revoked_holders(parties)
    if unknown := sorted(set(names) - keys.keys()):
        raise not_enrolled(unknown, revoked)
    if not keys:
        raise not_enrolled(sorted(revoked), revoked)
    return {name: keys[name] for name in names or sorted(keys)}


def not_enrolled(names: Collection[str], revoked: Collection[str], otherwise: str = "") -> BadRequest:
    """What is said of holders that were asked for and are none, or whose key counts no more; of no name: that there is no holder."""
    unknown, ended = sorted({*names} - {*revoked}), sorted({*names} & {*revoked})
    reasons = [f"not enrolled as holders: {', '.join(unknown)}"] if unknown else []
    reasons += [f"whose key was revoked: {', '.join(ended)}"] if ended else []
    remedies = ["Enrol a holder's public key: `gput party enrol NAME KEY.pub`."] if unknown or not ended else []
    remedies += (
        ["Where a key was revoked, confirm its new one: `gput party replace-key NAME KEY.pub`."] if ended else []
    )
    return BadRequest(
        "; ".join(reasons) or "no holder is enrolled", code="party-not-enrolled", remedy=" ".join((*remedies, otherwise)).strip()
    )  # fmt: skip


def _holders(parties: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    return (one for one in parties if text_of(one, "role") == "holder")


def _revoked(party: Mapping[str, Any]) -> bool:
    return party.get("key_valid_until") is not None
