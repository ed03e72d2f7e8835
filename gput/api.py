"""The orchestrator's public API as JSON: what the typed client and the command line stand on. Knows HTTP and signatures, no service's code.

Every call is an RFC 9421 signed request. Errors are the family of `shared.errors`, with the service's own code and remedy.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace as changed
from pathlib import Path
from typing import Any, Self

from gput.answers import Told, object_of, only_asked, read_as, text_of
from gput.download import Download
from gput.ids import joined, pick, whole
from gput.pages import pages
from gput.whole import drafted
from shared.attestation.owners import LABEL as MANIFEST_LABEL
from shared.claims.archive import open_archive
from shared.claims.faults import judged
from shared.claims.manifest import Manifest, Predecessor
from shared.crypto.signing import PartyKey
from shared.errors import Unavailable
from shared.service.clock import Clock, system_clock, system_entropy
from shared.service.event_reader import NO_EVENT, Event, iter_sse
from shared.service.http import PeerClient, Peers
from shared.service.signatures import SignedAuth
from shared.wire.dry_run import Verdict
from shared.wire.visit import Signed

UPLOAD_TIMEOUT_S = 600.0
PAGE = 200
ME, SESSION, REMOVAL = ("name", "role", "key"), ("id", "phase"), ("waits_for", "until")
"""Fields without which an answer is none about a party, a session, or what is left of a removed one."""
ENDED = ("COMPLETED", "FAILED", "CANCELLED")
# How long a watcher sits out an orchestrator that is away; longer than any restart, shorter than a person's patience.
PATIENCE_S = 120.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0


class _Lull:
    """Between two askings that may bring nothing: longer and longer pauses, and an end to patience with what does not answer at all."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._pause = FIRST_PAUSE_S

    def answered(self) -> None:
        """It is there: patience begins anew with what breaks next."""
        self._since = None

    def news(self) -> None:
        """And it had something to say: the next pause is short."""
        self._since, self._pause = None, FIRST_PAUSE_S

    async def after(self, broke: Unavailable | None) -> None:
        """Pause. Raises: `broke`, once nothing answered for `PATIENCE_S`."""
        now = time.monotonic()
        if broke is not None:
            self._since = now if self._since is None else self._since
            if now - self._since > PATIENCE_S:
                raise broke
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_PAUSE_S)


class Api:
    """Talks to one orchestrator as one party; its arguments are `gput.client.AsyncClient`'s, which believes nobody unasked."""

    def __init__(
        self, url: str, key: PartyKey | Path | str, *, peers: Peers | None = None, clock: Clock = system_clock
    ) -> None:
        self._key = key if isinstance(key, PartyKey) else PartyKey.load(Path(key))
        self._peers = peers or Peers(entropy=system_entropy)
        self._clock, self._entropy = clock, system_entropy
        self._peer = self._reached(url)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._peers.close()

    def _reached(self, url: str) -> PeerClient:
        return self._peers.peer(url, "orchestrator", auth=SignedAuth(self._key, self._clock, self._entropy))

    async def _to(self) -> PeerClient:
        """Whom to ask; raises where that was not decided."""
        return self._peer

    async def _ask(self, method: str, path: str, *names: str, **options: Any) -> Told:
        """The object that is answered, which has these fields. Raises: as `PeerClient.request`; Unavailable `peer-unintelligible`."""
        peer = await self._to()
        return object_of(peer.json_of(await peer.request(method, path, **options)), *names)

    async def get(self, path: str, **params: Any) -> Any:
        """GET any path under /v1: the JSON object that is answered. What is read of it and is not there is Unavailable, no KeyError."""
        return await self._ask("GET", f"/v1/{path}", params={k: v for k, v in params.items() if v is not None})

    async def items(self, path: str, **params: Any) -> list[Any]:
        """All items of a list, page by page."""
        return [*await pages(lambda after: self.get(path, after=after, limit=PAGE, **params), "orchestrator")]

    async def would(self, *path: str, body: Any = None) -> Verdict:
        """What the orchestrator says beforehand to the act at this path (docs/adr/0052). Raises: as the act would be; as `only_asked`."""
        with only_asked("orchestrator"):  # it may read given weights, as for a submission
            answer = await self._ask("POST", f"/v1/dry-run/{joined(*path)}", json=body, timeout_s=UPLOAD_TIMEOUT_S)
        return read_as(Verdict, answer)

    async def whoami(self) -> Any:
        """Name, role and key fingerprint as the orchestrator knows them."""
        return await self._ask("GET", "/v1/whoami", *ME)

    async def enrol(self, name: str, public_key: bytes, role: str = "holder") -> Any:
        """Enrol a party (owner only). `public_key`: raw Ed25519, 32 bytes."""
        body = {"name": name, "role": role, "public_key": public_key.hex()}
        key = f"enrol-{secrets.token_hex(16)}"
        return await self._ask("POST", "/v1/parties", *ME, json=body, idempotency_key=key)

    async def rotate_key(self, old: PartyKey, new: PartyKey) -> Any:
        """Be known by `new` from now on. `old` is this client's own key, which the orchestrator refuses afterwards."""
        from shared.attestation.key_rotations import sign_rotation

        name = text_of(await self.whoami(), "name")
        said = sign_rotation(name, old, new, int(self._clock()))
        return await self._ask("PUT", f"/v1/parties/{name}/key", *ME, json=said.model_dump(mode="json"))

    async def revoke_key(self, name: str, key: str) -> Any:
        """Refuse a party's key (fingerprint) from now on (owner only)."""
        return await self._ask("PUT", f"/v1/parties/{name}/revocation", *ME, json={"key": key})

    async def replace_key(self, name: str, public_key: bytes, replaces: str) -> Any:
        """Confirm a party's new key (raw, 32 bytes) in the place of the one with fingerprint `replaces` (owner only)."""
        body = {"public_key": public_key.hex(), "replaces": replaces}
        return await self._ask("PUT", f"/v1/parties/{name}/replacement", *ME, json=body)

    async def upload_program(self, archive: bytes) -> Any:
        """Store a program archive; its digest names it. Raises InvalidProgram: before it is sent, if it is none."""
        digest = open_archive(archive).digest.hex()
        return await self._put(f"/v1/programs/{digest}/archive", archive)

    async def upload_weights(self, weights: bytes) -> Any:
        """Store initial weights (safetensors)."""
        return await self._put(f"/v1/weights/{hashlib.sha256(weights).hexdigest()}", weights)

    async def upload_validation(self, records: bytes) -> Any:
        """Store a held-out set: records' bytes end to end."""
        return await self._put(f"/v1/validation-datasets/{hashlib.sha256(records).hexdigest()}", records)

    async def submit(self, manifest: Manifest, *, idempotency_key: str | None = None, gpu: str | None = None) -> Any:
        """Submit a session, signed by this party as its owner."""
        document = manifest.canonical()
        signed = Signed(
            document=b64encode(document).decode(),
            signature=b64encode(self._key.sign(MANIFEST_LABEL, document)).decode(),
        )
        path = f"/v1/sessions?gpu={gpu}" if gpu else "/v1/sessions"
        key = f"submit-{secrets.token_hex(16)}" if idempotency_key is None else idempotency_key
        # Given weights are read and checked before the answer: as long as their upload may take.
        return await self._ask(
            "POST", path, *SESSION, json=signed.model_dump(mode="json"), idempotency_key=key, timeout_s=UPLOAD_TIMEOUT_S
        )

    async def session(
        self, session: str, *, wait: float | None = None, version: int | None = None, phase: str | None = None
    ) -> Any:
        """One session; with `wait`, answers when its version exceeds `version`, or it left `phase`, or the seconds ran out."""
        return object_of(await self._looked_at(session, wait=wait, version=version, phase=phase), *SESSION)

    async def _looked_at(self, session: str, *, wait: float | None = None, **query: Any) -> Any:
        params = {k: v for k, v in {"wait": wait, **query}.items() if v is not None}
        return await (await self._to()).get_json(f"/v1/sessions/{session}", params=params, timeout_s=(wait or 0) + 10)

    async def manifest(self, session: str) -> Manifest:
        """The manifest of a session."""
        from shared.attestation.one_time_keys import decoded

        signed = read_as(Signed, await self.get(f"sessions/{session}/manifest"))
        return judged(decoded(signed.document), f"{session}: ")

    async def successor(
        self, session: str, *, replace: Mapping[str, str] | None = None, add: Sequence[str] = (), remove: Sequence[str] = (),
        rounds: int | None = None,
    ) -> Manifest:  # fmt: skip
        """The manifest of a session that goes on with an ended one's model (`gput.succession`); nothing is submitted. Raises: as there;
        Conflict: `predecessor-not-ended`, `predecessor-without-model`, or that its manifest lets none go on with it."""
        from gput.rotated import rotated
        from gput.succession import successor_of

        says = read_as(Predecessor, await self.get(f"sessions/{session}/continuation"))
        parties = await self.items("parties")
        enrolled = {text_of(one, "name"): text_of(one, "key") for one in parties if text_of(one, "role") == "holder"}
        old = await self.manifest(session)
        moved = await rotated(self.items, old, says, enrolled)
        return successor_of(old, says, enrolled, replace=replace, add=add, remove=remove, rounds=rounds, moved=moved)

    async def find(self, session: str) -> str:
        """The whole id of a session, from a beginning that is no other's. Raises: NotFound, BadRequest `ambiguous-id`."""
        if whole(session):
            return session
        known = (text_of(item, "id") for item in await self.items("sessions"))
        return pick(session, known, "s_", "session", "`gput session list` shows them.")

    async def act(self, session: str, action: str) -> Any:
        """pause, resume or cancel a session."""
        key = f"{action}-{secrets.token_hex(16)}"
        return await self._ask("POST", f"/v1/sessions/{session}/{action}", *SESSION, idempotency_key=key)

    async def delete(self, session: str) -> Any:
        """Remove a finished session of one's own, its model included, for good; None, or for whom the rest of it waits.

        Raises:
            Conflict: it has not ended. NotFound: it is gone already.
        """
        peer = await self._to()
        answer = await peer.request("DELETE", f"/v1/sessions/{session}")
        return object_of(peer.json_of(answer), *REMOVAL) if answer.status_code == 202 else None

    async def wait(self, session: str) -> Any:
        """The session once it has ended, or is paused; sits out a restart of the orchestrator."""
        view = await self._patiently(session)
        while (phase := text_of(view, "phase")) not in (*ENDED, "PAUSED"):
            view = await self._patiently(session, wait=25, phase=phase)
        return view

    async def events(self, session: str, after: int = 0) -> AsyncIterator[Event]:
        """The session's events until its final one; resumed where they broke off, also over a restart of the orchestrator.

        Raises:
            Unavailable: the orchestrator, or its stream, stayed away for `PATIENCE_S`; `peer-unintelligible`: what came is no event.
        """
        last, lull = after, _Lull()
        while True:
            had, broke, began = last, None, False
            try:
                async with (await self._to()).stream(
                    "GET", f"/v1/sessions/{session}/events", headers={"Last-Event-ID": str(last)}
                ) as response:
                    lull.answered()
                    began = True
                    async for event in iter_sse(response):
                        last = event.id or last
                        lull.news()
                        yield changed(event, data=object_of(event.data))
                        if event.event == "session" and str(event.data.get("fact")).upper() in ENDED:
                            return
            except Unavailable as error:
                if began and error.code == NO_EVENT:
                    raise  # nothing broke off: it would say so again
                broke = error
            # That the session has ended says nothing of a stream that broke off before it told so.
            ended = text_of(await self._patiently(session), "phase") in ENDED
            if ended and broke is None and last == had:
                return  # whoever asked knows the final one already
            await lull.after(broke)

    async def _patiently(self, session: str, **query: Any) -> Any:
        lull = _Lull()
        while True:
            try:
                answer = await self._looked_at(session, **query)
            except Unavailable as error:
                await lull.after(error)
            else:
                return object_of(answer, *SESSION)

    async def model(self, session: str, target: Path, check: Callable[[Path], object] | None = None) -> Path:
        """Fetch the finished model into `target`: written whole or not at all. A stream that broke off is taken up where it did.

        Args:
            check: is shown the whole file, under another name, and raises if it is not to be.

        Raises:
            Conflict `model-not-ready`. VerificationFailed `model-altered`: what came is not what the session exported. Unavailable: nothing
                came for `PATIENCE_S`. What `check` raises.
        """
        with drafted(target) as draft:
            await Download(f"/v1/sessions/{session}/model", draft).run(await self._to(), PATIENCE_S)
            if check is not None:
                await asyncio.to_thread(check, draft)
        return target

    async def raw(self, path: str) -> bytes:
        """GET bytes under /v1."""
        response = await (await self._to()).request("GET", f"/v1/{path}")
        return bytes(response.content)

    async def _put(self, path: str, content: bytes) -> Any:
        headers = {"content-type": "application/octet-stream"}
        return await self._ask("PUT", path, content=content, headers=headers, timeout_s=UPLOAD_TIMEOUT_S)
