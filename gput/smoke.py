"""One tiny session from draft to verified receipts, and nothing left of it: does an installation do its work? Knows the client only.

A running installation keeps what every session leaves there: an ended session, for `keep_finished_s`.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gput.about import PEER
from gput.answers import read_as, text_of, unintelligible
from gput.api import Api
from gput.draft import draft
from gput.enrolled import chosen_holders
from gput.receipt_folder import read_session
from gput.receipts import Verified, save, verify
from shared.claims.archive import open_archive
from shared.claims.manifest import Manifest
from shared.claims.session_ids import session_id
from shared.errors import GputError, JobFailed, TimedOut, VerificationFailed
from shared.wire.visit import Signed

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wanted:
    """What to run: a program archive, over which holders (all that are enrolled, if none), and whose roots count for its receipts."""

    archive: bytes
    trust: Path
    holders: Sequence[str] = ()
    emulated: bool = False
    timeout_s: float = 300.0


async def smoke(client: Api, wanted: Wanted, say: Say) -> dict[str, Any]:
    """Submit one round of one step a visit, wait for it, verify its receipts. What did not end by itself is cancelled.

    Raises:
        TimedOut: naming whom it waited for. JobFailed: it ended otherwise. VerificationFailed: a receipt does not hold.
    """
    manifest = await _manifest(client, wanted)
    await client.upload_program(wanted.archive)
    act = f"smoke-{secrets.token_hex(16)}"
    session = _own(await client.submit(manifest, idempotency_key=act), act)
    names = [entry.holder for entry in manifest.roster]
    try:
        say(f"submitted {session} to {', '.join(names)}; waiting for approvals and {len(names)} visits")
        view = await _ended(client, session, wanted.timeout_s)
    except BaseException:
        with suppress(GputError):
            await client.act(session, "cancel")
            say(f"cancelled {session}")
        raise
    completed(view)
    with tempfile.TemporaryDirectory(prefix="gput-smoke-") as folder:
        return outcome(view, await verified(client, session, Path(folder) / "receipts", wanted.trust, manifest))


def _own(view: Mapping[str, Any], act: str) -> str:
    """The id of the session that was submitted: it may be cancelled, which an answer that names another must not bring about.

    Raises: Unavailable `peer-unintelligible`.
    """
    if view["id"] != session_id(text_of(view, "owner"), act):
        raise unintelligible("answered with another session than the one that was submitted", PEER)
    return str(view["id"])


def completed(view: Mapping[str, Any]) -> None:
    """Raises: JobFailed: the session ended otherwise."""
    if view["phase"] != "COMPLETED":
        why = (view.get("failure") or {}).get("detail") or "nobody said why"
        raise JobFailed(
            f"session {view['id']} is {view['phase']}: {why}", code="smoke-failed", remedy="Ask `gput doctor`."
        )


async def verified(
    client: Api, session: str, folder: Path, trust: Path, manifest: Manifest | None = None
) -> Verified:  # fmt: skip
    """The session's receipts, fetched into a folder and verified there.

    Args:
        manifest: what was submitted. Receipts hold under the manifest that comes with them, whose policies whoever answers would choose.

    Raises:
        VerificationFailed: a receipt does not hold; `other-manifest`. JobFailed: there is none.
    """
    await save(client, session, folder, trust)
    if manifest is not None:
        _submitted(folder, manifest)
    found = await asyncio.to_thread(verify, folder)
    if not found.receipts:
        raise JobFailed(f"session {session} left no receipt", code="smoke-failed", remedy="Ask `gput doctor`.")
    return found


def _submitted(folder: Path, manifest: Manifest) -> None:
    told = read_as(Signed, read_session(folder)["manifest"])
    if told.document != b64encode(manifest.canonical()).decode():
        raise VerificationFailed(
            "the receipts come with another manifest than the one that was submitted", code="other-manifest",
            remedy="Trust nothing from this orchestrator, and ask who runs it.",
        )  # fmt: skip


def outcome(view: Mapping[str, Any], held: Verified) -> dict[str, Any]:
    """What is printed."""
    return {
        "result": "works", "session": view["id"], "visits": view["visits_closed"], "receipts": held.receipts,
        "backends": list(held.backends), "seconds": round(view["updated_at"] - view["created_at"], 3), "root": held.root,
    }  # fmt: skip


async def _manifest(client: Api, wanted: Wanted) -> Manifest:
    holders = chosen_holders(wanted.holders, await client.items("parties"))
    made = draft(open_archive(wanted.archive), holders, emulated=wanted.emulated)
    return made.model_copy(update={"name": "gput smoke", "rounds": 1, "steps_per_visit": 1})


async def _ended(client: Api, session: str, seconds: float) -> Any:
    try:
        async with asyncio.timeout(seconds):
            while True:
                view = await client.wait(session)
                if view["phase"] != "PAUSED":
                    return view
                await client.act(session, "resume")
    except TimeoutError:
        view = await client.session(session)
        waiting = ", ".join(view["waiting_for"]) or f"phase {view['phase']}"
        raise TimedOut(
            f"session {session} did not end within {seconds:g} s; it waited for {waiting}", code="smoke-timed-out",
            remedy="A holder approves by its policy, or by `gput party approve`; `gput doctor` tests each hop.",
        ) from None  # fmt: skip
