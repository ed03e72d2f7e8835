"""The typed client's rooms: sessions, receipts, programs, parties, GPUs; each call asynchronous. Knows the API's paths, no signature.

The synchronous rooms (`gput.waiting`) are these, waited for: same names, same arguments, same words.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from gput.answers import read_as
from gput.api import Api
from gput.files import content as file
from gput.files import written
from gput.model_file import theirs
from gput.models import Event, Fetch, Gpu, Me, Party, Removal, Session, StoredProgram, VerifiedReceipts, Visit
from gput.trust import Trust
from gput.uploads import submit
from shared.claims.faults import judged
from shared.claims.manifest import Manifest
from shared.errors import BadRequest, TimedOut
from shared.names import SessionPhase
from shared.wire.estimate import Estimate

Listed = list
"""The builtin, whose name a room's own `list` takes."""


class _Room:
    def __init__(self, api: Api, trust: Trust | None) -> None:
        self._api, self._trust = api, trust


class AsyncSessions(_Room):
    """Sessions: submit, look at, steer. A session is named by its id or by a beginning of it that is no other's."""

    async def submit(
        self, manifest: Manifest | Path | str, *, upload_files: Sequence[Path | str] = (), idempotency_key: str | None = None,
        gpu: str | None = None,
    ) -> Session:  # fmt: skip
        """Submit a manifest, or the file that holds it, signed by you; files that it names by their digest are uploaded first.

        Raises:
            ManifestRefused: with every fault. BadRequest: `not-named`: a file that the manifest does not name;
                `idempotency-key-malformed`: nothing was sent.
        """
        agreed = manifest if isinstance(manifest, Manifest) else _read(Path(manifest))
        paths, key = [Path(file) for file in upload_files], idempotency_key
        view = await submit(self._api, agreed, paths, lambda text: None, idempotency_key=key, gpu=gpu)
        return read_as(Session, view)

    async def show(self, session: str) -> Session:
        """One session as it is now. Raises: NotFound, BadRequest `ambiguous-id`."""
        return read_as(Session, await self._api.session(await self._api.find(session)))

    async def estimate(self, session: str) -> Estimate:
        """What the session is expected to take: visits, bytes, seconds, and where the figures come from. Raises: as `show`."""
        return read_as(Estimate, await self._api.get(f"sessions/{await self._api.find(session)}/estimate"))

    async def list(self, phase: SessionPhase | None = None) -> Listed[Session]:
        """All sessions that you take part in, oldest first."""
        return [read_as(Session, item) for item in await self._api.items("sessions", phase=phase)]

    async def visits(self, session: str) -> Listed[Visit]:
        """Every attempt of every visit, in the order planned."""
        name = await self._api.find(session)
        return [read_as(Visit, item) for item in await self._api.items(f"sessions/{name}/visits")]

    async def wait(self, session: str, timeout_s: float | None = None) -> Session:
        """The session once it has ended or is paused; sits out a restart of the orchestrator. Raises: TimedOut."""
        name = await self._api.find(session)
        try:
            async with asyncio.timeout(timeout_s):
                return read_as(Session, await self._api.wait(name))
        except TimeoutError:
            raise TimedOut(
                f"session {name} has not ended within {timeout_s:g} s", remedy="It goes on: wait again."
            ) from None

    async def pause(self, session: str) -> Session:
        """Pause after the visit under way, with a sealed checkpoint."""
        return await self._act(session, "pause")

    async def resume(self, session: str) -> Session:
        """Continue a paused session."""
        return await self._act(session, "resume")

    async def successor(
        self, session: str, *, replace: Mapping[str, str] | None = None, add: Sequence[str] = (), remove: Sequence[str] = (),
        rounds: int | None = None,
    ) -> Manifest:  # fmt: skip
        """The manifest of a session that goes on with the model of an ended one, for instance with another holder in the place of one that
        is gone (`replace={"gone": "new"}`). Submit it, changed or not; every holder of its roster approves it anew.

        Raises:
            Conflict: `predecessor-not-ended`, `predecessor-without-model`. ManifestRefused: its holders did not agree to that.
        """
        name = await self._api.find(session)
        return await self._api.successor(name, replace=replace, add=add, remove=remove, rounds=rounds)

    async def cancel(self, session: str) -> Session:
        """End a session for good; the visit under way is recalled and the GPU wiped."""
        return await self._act(session, "cancel")

    async def delete(self, session: str) -> Removal | None:
        """Remove a finished session of yours for good. Its model is gone at once; if some holder has not fetched its last receipts yet, the
        rest waits for it, and is returned. Raises: Conflict `session-not-ended`."""
        rest = await self._api.delete(await self._api.find(session))
        return None if rest is None else read_as(Removal, rest)

    async def fetches(self, session: str) -> Listed[Fetch]:
        """Who fetched the finished model, and when."""
        name = await self._api.find(session)
        return [read_as(Fetch, item) for item in await self._api.items(f"sessions/{name}/model/fetches")]

    async def events(self, session: str, after: int = 0) -> AsyncIterator[Event]:
        """Events after the id `after`, until the session's last one; a dropped stream is resumed where it broke off.

        Raises:
            Unavailable: the orchestrator stayed away for two minutes.
        """
        async for event in self._api.events(await self._api.find(session), after):
            yield read_as(Event, {"kind": event.event, **event.data, "id": event.id})

    async def model(self, session: str, target: Path | str, *, receipts: VerifiedReceipts | None = None) -> Path:
        """Fetch the finished model into `target`, whole or not at all, if it is the one that the session's verified receipts end with.

        Args:
            receipts: what verifying this session's receipts gave. Without them a client with a trust folder fetches and verifies them
                first; an UNATTESTED one compares the file with what is answered in the orchestrator's name, and no more.

        Raises:
            Conflict `model-not-ready`. VerificationFailed: `model-not-of-receipts`, `model-altered`, or a receipt that does not hold.
            BadRequest: `other-session`: the receipts are of another; `cannot-write`: `target` cannot be written.
        """
        name = await self._api.find(session)
        if receipts is None and self._trust is not None:
            receipts = await AsyncReceipts(self._api, self._trust).verify(name)
        check = None if receipts is None else theirs(name, receipts.session, receipts.models)
        with written(target):
            return await self._api.model(name, Path(target), check)

    async def _act(self, session: str, action: str) -> Session:
        return read_as(Session, await self._api.act(await self._api.find(session), action))


class AsyncReceipts(_Room):
    """The signed receipts of a session's visits."""

    async def save(self, session: str, folder: Path | str) -> Path:
        """Fetch receipts, log and keys into a folder that anybody can verify offline.

        Raises:
            BadRequest: `no-trust`; `cannot-write`: the folder cannot be written.
        """
        from gput.receipts import save

        with written(folder):
            await save(self._api, await self._api.find(session), Path(folder), self._trusted().folder)
        return Path(folder)

    async def verify(self, session: str) -> VerifiedReceipts:
        """Fetch and verify every receipt, the log and all keys, against your own trust folder.

        Raises:
            VerificationFailed: naming what does not hold; also where emulated parts signed and may not count.
        """
        with tempfile.TemporaryDirectory(prefix="gput-receipts-") as folder:
            return await self.verify_folder(await self.save(session, folder))

    async def verify_folder(self, folder: Path | str, predecessor: Path | str | None = None) -> VerifiedReceipts:
        """Verify a saved folder, and `predecessor`, the folder of the session that it goes on from, which must fit; asks nobody. Both under
        the roots of your own trust folder; an UNATTESTED client has none, and takes those that lie in each. Raises: as `verify`."""
        from gput.receipts import verify

        before = None if predecessor is None else Path(predecessor)
        found = await asyncio.to_thread(
            verify, Path(folder), predecessor=before, trust=None if self._trust is None else self._trust.folder
        )
        if self._trust is not None:
            self._trust.allows(found.backends)
        return VerifiedReceipts.model_validate(asdict(found) | {"backends": list(found.backends)})

    def _trusted(self) -> Trust:
        if self._trust is None:
            raise BadRequest(
                "receipts are verified against a trust folder, and this client has none", code="no-trust",
                remedy="Make the client with trust=Trust(folder).",
            )  # fmt: skip
        return self._trust


class AsyncPrograms(_Room):
    """Training programs in the orchestrator's library."""

    async def upload(self, archive: Path | str | bytes) -> StoredProgram:
        """Store an archive, or the file that holds it; its digest names it.

        Raises:
            BadRequest `no-program`: the file cannot be read. InvalidProgram: before anything is sent.
        """
        content = archive if isinstance(archive, bytes) else await asyncio.to_thread(file, Path(archive), "no-program")
        return read_as(StoredProgram, await self._api.upload_program(content))

    async def list(self) -> Listed[StoredProgram]:
        """All that are stored."""
        return [read_as(StoredProgram, item) for item in await self._api.items("programs")]


class AsyncParties(_Room):
    """Who is known to the orchestrator, and by which key."""

    async def me(self) -> Me:
        """Who you are there."""
        return read_as(Me, await self._api.whoami())

    async def list(self) -> Listed[Party]:
        """All enrolled parties."""
        return [read_as(Party, item) for item in await self._api.items("parties")]

    async def enrol(self, name: str, public_key: bytes, role: str = "holder") -> Party:
        """Enrol a party (owner only). `public_key`: raw Ed25519, 32 bytes; `role`: holder or auditor."""
        return read_as(Party, await self._api.enrol(name, public_key, role))


class AsyncGpus(_Room):
    """The pool."""

    async def list(self) -> Listed[Gpu]:
        """Every GPU, and which session has it."""
        return [read_as(Gpu, item) for item in await self._api.items("gpus")]


def _read(path: Path) -> Manifest:
    return judged(file(path, "no-manifest"), f"{path}: ")
