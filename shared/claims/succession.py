"""Whether one manifest may go on with the model of another: what must stay, and what those who left agreed to. Knows no log, no storage.

Holders, orchestrator and command line ask the same question of the same two documents. What the predecessor field says of the
predecessor (digests, contributors) is held against logs and receipts elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from shared.claims.faults import Finding
from shared.claims.layout import moment_slots
from shared.claims.manifest import Contributor, Manifest

DIFFERS, REFUSED, WIDER = "successor-differs", "continuation-refused", "successor-wider"
_ALONE = ("privacy", "accumulate")
"""What a manifest may ask for whose session nobody can go on with yet."""


def gone(new: Manifest, moved: Collection[str] = ()) -> tuple[Contributor, ...]:
    """Contributors that need not approve `new` for it to run: they are absent from its roster, or a quorum can do without.

    Args:
        moved: holders whose key in `new` came from the one before by their own signed rotations.
    """
    if new.predecessor is None:
        return ()
    everybody = new.quorum in (None, len(new.roster))
    return absent(new, moved) if everybody else new.predecessor.contributors


def absent(new: Manifest, moved: Collection[str] = ()) -> tuple[Contributor, ...]:
    """Contributors of whom no entry of `new`'s roster has the name and the key, or a key that came from it; `moved` as in `gone`."""
    if new.predecessor is None:
        return ()
    keys = {entry.holder: entry.key for entry in new.roster}
    return tuple(
        one
        for one in new.predecessor.contributors
        if keys.get(one.holder) != one.key and not (one.holder in keys and one.holder in moved)
    )


def newcomers(old: Manifest, new: Manifest, moved: Collection[str] = ()) -> tuple[str, ...]:
    """Parties of `new`'s roster that nobody could read in `old`'s, by name and key; `moved` as in `gone`. One whose key its owner replaced
    is another under the old name, to which nobody agreed."""
    keys = {entry.holder: entry.key for entry in old.roster}
    return tuple(
        entry.holder
        for entry in new.roster
        if keys.get(entry.holder) != entry.key and not (entry.holder in keys and entry.holder in moved)
    )


def may_have_successor(manifest: Manifest) -> bool:
    """Whether any session could go on with the model of one with this manifest."""
    return not barred(manifest)


def barred(old: Manifest) -> list[Finding]:
    """What keeps every session from going on with the model of one with this manifest; empty where another may."""
    found = [
        Finding(
            f"predecessor.{field}", f"the predecessor was a session with {field}, which none can go on with yet",
            "Begin a new session; its finished model can be the new one's initial_weights.", "unsupported-feature",
        )
        for field in _ALONE if getattr(old, field) is not None
    ]  # fmt: skip
    if old.continuation == "refused":
        word = "its holders agreed that no session goes on with its model"
        found.append(Finding("predecessor", word, "Begin a new session.", REFUSED))
    return found


def succession_findings(old: Manifest, new: Manifest, moved: Collection[str] = ()) -> list[Finding]:
    """Everything that keeps `new` from going on with the model of `old`, whose digest it names; empty where nothing does.

    Who is gone agreed to `old` and to nothing since. So no one may get more of the model than `old` says, no GPU and no orchestrator
    may have proven something else, and `old` must say that it may go on without them.
    """
    consent = _consent(old, new, gone(new, moved), newcomers(old, new, moved))
    return [*_training(old, new), *barred(old), *consent]


def _training(old: Manifest, new: Manifest) -> Iterator[Finding]:
    """The optimiser's state is gone on with, so it must be of the same kind and shape."""
    if old.program != new.program:
        yield Finding(
            "program", "the predecessor trained another program", f"Name its program, {old.program[:16]}….", DIFFERS
        )
    before, after = old.training.optimizer, new.training.optimizer
    if before.kind != after.kind or moment_slots(old.training) != moment_slots(new.training):
        yield Finding(
            "training.optimizer", "the predecessor's optimiser keeps another state than this one",
            f"Use {before.kind} with the same moments; rates and decay may change.", DIFFERS,
        )  # fmt: skip


def _consent(old: Manifest, new: Manifest, left: tuple[Contributor, ...], came: tuple[str, ...]) -> Iterator[Finding]:
    if not left:
        return
    names = ", ".join(one.holder for one in left)
    back = f"Put {names} into the roster with the key that the predecessor names, and ask for everybody's approval (no quorum)"
    if old.continuation is None:
        yield Finding(
            "roster", f"records of {names} are in the predecessor's model, and it did not say that it may go on without them",
            f"{back}, or begin a new session. Next time say \"continuation\": \"remaining\" from the start.", REFUSED,
        )  # fmt: skip
    more = sorted(set(new.output.release_to) - set(old.output.release_to))
    if more:
        yield Finding(
            "output.release_to",
            f"{names} agreed to no release to {', '.join(more)}",
            f"Leave that out. Or: {back}.",
            WIDER,
        )
    elif "holders" in new.output.release_to and came:
        yield Finding(
            "output.release_to",
            f"{names} agreed to a release to the holders of its roster, and {', '.join(came)} stood not in it",
            f"Release it to the owner alone. Or: {back}.", WIDER,
        )  # fmt: skip
    for field in ("gpu_evidence", "orchestrator_evidence"):
        if getattr(old, field) != getattr(new, field):
            yield Finding(field, f"{names} agreed to another policy", f"Take the predecessor's. Or: {back}.", WIDER)
