"""The manifest of a successor, written from its predecessor's: who takes whose place, what is left to do, what differs. Asks nobody."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from gput.enrolled import not_enrolled
from shared.canonical import json_bytes
from shared.claims.faults import ManifestRefused, judged
from shared.claims.manifest import Manifest, Predecessor
from shared.claims.succession import barred, gone, newcomers, succession_findings
from shared.errors import BadRequest, VerificationFailed


def successor_of(
    old: Manifest, says: Predecessor, keys: Mapping[str, str], *, replace: Mapping[str, str] | None = None,
    add: Sequence[str] = (), remove: Sequence[str] = (), rounds: int | None = None, moved: Collection[str] = (),
    revoked: Collection[str] = (),
) -> Manifest:  # fmt: skip
    """What goes on with the model of `old` as `says` reads it off.

    Args:
        keys: fingerprints of enrolled holders' keys that count, by name; `revoked`: holders whose key does not.
        replace: by holder of `old`, who takes its place in the roster, with its steps and the evidence asked of it.
        rounds: how many there shall be; without, those that `old` had left, the one that was interrupted included. Then a decaying
            learning rate also ends where it would have ended.
        moved: holders whose key in `keys` came from the one before by their own signed rotations (`gput.rotated`).

    Raises:
        BadRequest: names that are not in the roster or not enrolled, no rounds left. ManifestRefused: it may not be gone on with so.
    """
    if never := barred(old):
        raise ManifestRefused(never)
    roster = _roster(old, keys, replace or {}, add, remove, revoked)
    left = old.rounds - rounds_behind(old, says) if rounds is None else rounds
    if left < 1:
        raise BadRequest(
            f"{says.session} has no rounds left",
            code="no-rounds-left",
            remedy="Say how many there shall be: --rounds N.",
        )
    fields = old.model_dump(mode="json") | {
        "roster": roster, "rounds": left, "predecessor": says.model_dump(mode="json"), "initial_weights": None,
    }  # fmt: skip
    for share in ("quorum", "recovery_shares"):
        if fields.get(share):
            fields[share] = min(fields[share], len(roster))
    schedule = fields["training"]["schedule"]
    if rounds is None and schedule["kind"] != "constant" and schedule["total_steps"] is None:
        schedule["total_steps"] = old.optimiser_steps
    new = judged(json_bytes(fields))
    if gone(new, moved) and newcomers(old, new, moved) and set(new.output.release_to) > {"owner"}:
        new = judged(json_bytes(fields | {"output": {"release_to": ["owner"]}}))
    if findings := succession_findings(old, new, moved):
        raise ManifestRefused(findings)
    return new


def check_predecessor(old: Manifest, says: Predecessor, session: str) -> None:
    """What is read off is of this session, and of the manifest that it ran under. Raises: VerificationFailed `predecessor-mismatch`."""
    wanted, told = (session, old.digest().hex()), (says.session, says.manifest)
    if told != wanted:
        raise VerificationFailed(
            f"what the orchestrator says of the end of {session} is of another session or manifest", code="predecessor-mismatch",
            expected=" ".join(wanted), got=" ".join(told),
        )  # fmt: skip


def rounds_behind(old: Manifest, says: Predecessor) -> int:
    """Rounds of which every contributor of the roster has its visit behind it."""
    batch, reached = old.training.batch_size, {one.holder: one.records for one in says.contributors}
    passed = [
        (reached[entry.holder] - old.records_behind(entry.holder)) // (old.steps_for(entry.holder) * batch)
        for entry in old.roster
        if entry.holder in reached
    ]
    return min(passed, default=0)


def _roster(
    old: Manifest,
    keys: Mapping[str, str],
    replace: Mapping[str, str],
    add: Sequence[str],
    remove: Sequence[str],
    revoked: Collection[str],
) -> list[dict[str, Any]]:
    there = [entry.holder for entry in old.roster]
    if strangers := sorted({*replace, *remove} - {*there}):
        raise BadRequest(
            f"not in the roster: {', '.join(strangers)}", code="not-in-roster", remedy=f"In it are {', '.join(there)}."
        )
    found = []
    for entry in old.roster:
        name = replace.get(entry.holder, entry.holder)
        if entry.holder not in remove:
            found.append(entry.model_dump(mode="json") | {"holder": name})
    found += [old.roster[0].model_dump(mode="json") | {"holder": name, "steps_per_visit": None} for name in add]
    names = [entry["holder"] for entry in found]
    if unknown := sorted({*names} - keys.keys()):
        raise not_enrolled(unknown, revoked, "One that is gone: --replace or --remove.")
    if len(set(names)) != len(names):
        raise BadRequest("a holder would be twice in the roster", code="party-exists", remedy="Name another one.")
    return [entry | {"key": keys[entry["holder"]]} for entry in found]


def changes(old: Manifest, new: Manifest) -> Iterator[tuple[str, str, str]]:
    """(field, before, after) of everything in which two manifests differ but the predecessor; "" where it is absent."""
    before, after = (dict(_flat("", one.model_dump(mode="json", exclude={"predecessor"}))) for one in (old, new))
    for field in dict.fromkeys((*before, *after)):
        if before.get(field) != after.get(field):
            yield field, before.get(field, ""), after.get(field, "")


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(f"{path}.{name}" if path else name, inner)
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        for number, inner in enumerate(value):
            yield from _flat(f"{path}.{number}", inner)
    else:
        yield path, ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
