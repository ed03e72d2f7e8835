"""The orchestrator's public API as JSON: what the typed client and the command line stand on. Knows HTTP and signatures, no service's code.

Every call is an RFC 9421 signed request. Errors are the family of `shared.errors`, with the service's own code and remedy.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self

from gput.about import party_of, path_of, session_of
from gput.answers import Told, object_of, only_asked, read_as, text_of
from gput.download import Download, Exported
from gput.following import ENDED, follow
from gput.ids import in_full, joined, pick, whole
from gput.pages import pages
from gput.whole import drafted
from shared.attestation.owners import LABEL as MANIFEST_LABEL
from shared.claims.archive import open_archive
from shared.claims.manifest import Manifest
from shared.crypto.signing import PartyKey, fingerprint
from shared.errors import Unavailable
from shared.service.clock import Clock, system_clock, system_entropy
from shared.service.event_reader import Event
from shared.service.http import PeerClient, Peers
from shared.service.signatures import SignedAuth
from shared.wire.dry_run import Verdict
from shared.wire.visit import Signed

UPLOAD_TIMEOUT_S = 600.0
PAGE = 200
REMOVAL = ("waits_for", "until")
"""Fields without which an answer is none about what is left of a removed session."""
# How long a watcher sits out an orchestrator that is away; longer than any restart, shorter than a person's patience.
PATIENCE_S = 120.0


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
        me = await self._ask("GET", "/v1/whoami")
        return party_of(me, text_of(me, "name"), self._key.fingerprint)

    async def party(self, name: str) -> Any:
        """An enrolled party, with the fingerprint of its newest key. Raises: NotFound."""
        row = await self._ask("GET", path_of(name))
        return party_of(row, name, text_of(row, "key"))

    async def enrol(self, name: str, public_key: bytes, role: str = "holder") -> Any:
        """Enrol a party (owner only). `public_key`: raw Ed25519, 32 bytes."""
        body = {"name": name, "role": role, "public_key": public_key.hex()}
        key = f"enrol-{secrets.token_hex(16)}"
        row = await self._ask("POST", "/v1/parties", json=body, idempotency_key=key)
        return party_of(row, name, fingerprint(public_key))

    async def rotate_key(self, old: PartyKey, new: PartyKey) -> Any:
        """Be known by `new` from now on. `old` is this client's own key, which the orchestrator refuses afterwards."""
        from shared.attestation.key_rotations import sign_rotation

        name = text_of(await self.whoami(), "name")
        said = sign_rotation(name, old, new, int(self._clock()))
        row = await self._ask("PUT", f"{path_of(name)}/key", json=said.model_dump(mode="json"))
        return party_of(row, name, new.fingerprint)

    async def revoke_key(self, name: str, key: str) -> Any:
        """Refuse a party's key (fingerprint) from now on (owner only)."""
        return party_of(await self._ask("PUT", f"{path_of(name)}/revocation", json={"key": key}), name, key)

    async def replace_key(self, name: str, public_key: bytes, replaces: str) -> Any:
        """Confirm a party's new key (raw, 32 bytes) in the place of the one with fingerprint `replaces` (owner only)."""
        body = {"public_key": public_key.hex(), "replaces": replaces}
        return party_of(
            await self._ask("PUT", f"{path_of(name)}/replacement", json=body), name, fingerprint(public_key)
        )

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
        view = await self._ask(
            "POST", path, json=signed.model_dump(mode="json"), idempotency_key=key, timeout_s=UPLOAD_TIMEOUT_S
        )
        return session_of(view, text_of(view, "id"))

    async def session(
        self, session: str, *, wait: float | None = None, version: int | None = None, phase: str | None = None
    ) -> Any:
        """One session; with `wait`, answers when its version exceeds `version`, or it left `phase`, or the seconds ran out."""
        return session_of(await self._looked_at(session, wait=wait, version=version, phase=phase), session)

    async def _looked_at(self, session: str, *, wait: float | None = None, **query: Any) -> Any:
        params = {k: v for k, v in {"wait": wait, **query}.items() if v is not None}
        path, timeout_s = f"/v1/sessions/{in_full(session)}", (wait or 0) + 10
        return await (await self._to()).get_json(path, params=params, timeout_s=timeout_s)

    async def manifest(self, session: str) -> Manifest:
        """The manifest of a session, as it is answered: whose it is, is not asked."""
        return await self._manifest(session, None)

    async def own_manifest(self, session: str) -> Manifest:
        """The manifest of a session that this client's key signed. Raises: VerificationFailed `bad-signature`: that key did not."""
        return await self._manifest(session, self._key.public)

    async def _manifest(self, session: str, owner: bytes | None) -> Manifest:
        from gput.signed_manifest import read_signed

        signed = read_as(Signed, await self.get(f"sessions/{in_full(session)}/manifest"))
        return read_signed(signed, session, owner)

    async def successor(
        self, session: str, *, replace: Mapping[str, str] | None = None, add: Sequence[str] = (), remove: Sequence[str] = (),
        rounds: int | None = None,
    ) -> Manifest:  # fmt: skip
        """The manifest of a session that goes on with an ended one's model (`gput.succession`); nothing is submitted. Raises: as there;
        Conflict: `predecessor-not-ended`, `predecessor-without-model`, or that its manifest lets none go on with it. VerificationFailed: as
        `own_manifest`, since no other key may submit a successor; `predecessor-mismatch`: it is not the one that the session ended under.
        """
        from gput.successors import successor

        return await successor(self, session, replace=replace, add=add, remove=remove, rounds=rounds)

    async def find(self, session: str) -> str:
        """The whole id of a session, from a beginning that is no other's. Raises: NotFound, BadRequest `ambiguous-id`."""
        if whole(session):
            return session
        known = (text_of(item, "id") for item in await self.items("sessions"))
        return pick(session, known, "s_", "session", "`gput session list` shows them.")

    async def act(self, session: str, action: str) -> Any:
        """pause, resume or cancel a session."""
        key = f"{action}-{secrets.token_hex(16)}"
        view = await self._ask("POST", f"/v1/sessions/{in_full(session)}/{action}", idempotency_key=key)
        return session_of(view, session)

    async def delete(self, session: str) -> Any:
        """Remove a finished session of one's own, its model included, for good; None, or for whom the rest of it waits.

        Raises:
            Conflict: it has not ended. NotFound: it is gone already.
        """
        path, peer = f"/v1/sessions/{in_full(session)}", await self._to()
        answer = await peer.request("DELETE", path)
        return object_of(peer.json_of(answer), *REMOVAL) if answer.status_code == 202 else None

    async def wait(self, session: str) -> Any:
        """The session once it has ended, or is paused; sits out a restart of the orchestrator."""
        view = await self.patiently(session)
        while (phase := text_of(view, "phase")) not in (*ENDED, "PAUSED"):
            view = await self.patiently(session, wait=25, phase=phase)
        return view

    async def events(self, session: str, after: int = 0) -> AsyncIterator[Event]:
        """The session's events until its final one; resumed where they broke off, also over a restart of the orchestrator.

        Raises:
            Unavailable: the orchestrator, or its stream, stayed away for `PATIENCE_S`, or that brought neither event nor keep-alive for
                so long; `peer-unintelligible`: what came is no event.
        """

        async def ended() -> bool:
            return text_of(await self.patiently(session), "phase") in ENDED

        path, peer = f"/v1/sessions/{in_full(session)}/events", await self._to()
        async with aclosing(follow(peer, path, ended, after=after, patience_s=PATIENCE_S)) as events:
            async for event in events:
                yield event

    async def patiently(self, session: str, **query: Any) -> Any:
        """As `session`, which this asks again and again while the orchestrator is away. Raises: Unavailable: it was for `PATIENCE_S`."""
        from gput.lull import Lull

        lull = Lull(PATIENCE_S)
        while True:
            try:
                answer = await self._looked_at(session, **query)
            except Unavailable as error:
                await lull.after(error)
            else:
                return session_of(answer, session)

    async def model(self, session: str, target: Path, check: Callable[[Path], object] | None = None) -> Path:
        """Fetch the finished model into `target`: written whole or not at all. A stream that broke off is taken up where it did.

        Args:
            check: is shown the whole file, under another name, and raises if it is not to be.

        Raises:
            Conflict `model-not-ready`. VerificationFailed `model-altered`: what came is not what the session exported. Unavailable: nothing
                came for `PATIENCE_S`. What `check` raises.
        """
        exported = (await self.session(session)).get("model")  # signed for who asks for that, as the stream is not
        expected = None if exported is None else read_as(Exported, exported)
        with drafted(target) as draft:
            await Download(f"/v1/sessions/{session}/model", draft, expected).run(await self._to(), PATIENCE_S)
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
