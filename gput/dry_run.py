"""What a submission would be about, and what it lacks: asked of the orchestrator, which is told nothing. Knows the API, no terminal."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gput.files import content as content_of
from gput.uploads import check_key, with_weights
from shared.canonical import sha256
from shared.claims.archive import open_archive
from shared.errors import InvalidProgram

if TYPE_CHECKING:
    from gput.client import AsyncClient
    from shared.claims.manifest import Manifest, RosterEntry


async def would(
    client: AsyncClient, manifest: Manifest, paths: Sequence[Path], idempotency_key: str | None
) -> dict[str, Any]:
    """`missing` has a sentence for each thing that the orchestrator would refuse it for: files, holders, your role.

    Args:
        paths: files that would be uploaded first, and weights beside them (`with_weights`).
    Raises:
        BadRequest: `no-file`: one of them cannot be read; `idempotency-key-malformed`.
    """
    check_key(idempotency_key)
    me = await client.whoami()
    missing = await _files(client, manifest, paths) + _roster(manifest, await client.items("parties"))
    missing += [] if "owner" in me["role"] else [f"{me['name']} is {me['role']}: only an owner submits"]
    return {
        "name": manifest.name, "owner": me["name"], "manifest_digest": manifest.digest().hex(), "rounds": manifest.rounds,
        "visits": manifest.rounds * len(manifest.roster), "holders": [entry.holder for entry in manifest.roster], "missing": missing,
    }  # fmt: skip


async def _files(client: AsyncClient, manifest: Manifest, paths: Sequence[Path]) -> list[str]:
    """Program, weights to start from and held-out records that are neither stored nor brought; and what is brought for nothing."""
    brought = {
        path: await asyncio.to_thread(_digests, path) for path in await asyncio.to_thread(with_weights, manifest, paths)
    }
    digests = dict(brought.values())
    stored = {item["digest"]: item["initial_weights"].get("sha256") for item in await client.items("programs")}
    programs = stored | {digest: weights for digest, weights in digests.items() if weights is not None}
    named = {"program": manifest.program, "weights": _weights(manifest, programs)}
    named["held-out records"] = manifest.validation.dataset if manifest.validation is not None else None
    at = {"weights": "weights", "held-out records": "validation-datasets"}
    missing = []
    for what, digest in named.items():
        if digest is None or digest in digests:
            continue
        there = stored.keys() if what == "program" else {item["digest"] for item in await client.items(at[what])}
        missing += [] if digest in there else [f"{what} {digest}: say --upload FILE"]
    return missing + [
        f"{path}: the manifest does not name it"
        for path, (digest, _) in brought.items()
        if digest not in named.values()
    ]


def _digests(path: Path) -> tuple[str, str | None]:
    """By which digest a manifest names this file; and, of a program, the weights that it starts from ("" for none)."""
    content = content_of(path, "no-file")
    try:
        archive = open_archive(content)
    except InvalidProgram:
        return sha256(content).hex(), None
    return archive.digest.hex(), getattr(archive.manifest.initial_weights, "sha256", "")


def _weights(manifest: Manifest, programs: Mapping[str, str | None]) -> str | None:
    """SHA-256 of the weights to start from, as the orchestrator judges it; None where a seed or the predecessor makes them."""
    if manifest.predecessor is not None:
        return None
    return manifest.initial_weights or programs.get(manifest.program) or None


def _roster(manifest: Manifest, parties: Sequence[Mapping[str, Any]]) -> list[str]:
    known = {party["name"]: party for party in parties}
    found = [(entry.holder, _unfit(entry, known.get(entry.holder))) for entry in manifest.roster]
    return [f"holder {holder}: {what}" for holder, what in found if what is not None]


def _unfit(entry: RosterEntry, party: Mapping[str, Any] | None) -> str | None:
    """Why the roster's holder is none that counts; None: it is one."""
    if party is None:
        return "enrol it"
    if party["role"] != "holder":
        return f"is enrolled as {party['role']}"
    if party["key_valid_until"] is not None:
        return "its key was revoked: `gput party replace-key`"
    if party["key"] != entry.key:
        return f"is enrolled under another key ({party['key']}) than the roster's ({entry.key}): put the enrolled one into the roster"
    return None


__all__ = ["would"]
