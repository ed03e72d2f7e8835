"""Orchestrators of a few lines that prove themselves and sign as the real one does, and a wire on which somebody sits. Knows no rooms."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from gput import AsyncClient
from gput.trust import Trust
from shared.canonical import sha256
from shared.crypto.signing import PartyKey
from shared.errors import VerificationFailed
from shared.service.http import Peers
from shared.service.signed_answers import AnswerParts, asks, signed_fields
from shared.wire.attestation import OrchestratorProof

URL, STANDBY = "http://orchestrator.test", "http://standby.test"
CALLER = PartyKey.generate()
ME = {"name": "olga", "role": "owner", "key": CALLER.fingerprint}
RUNS, OTHER, NONE = (f"s_{letter * 16}" for letter in "abn")
"""Two sessions that run, and one that there is not."""
PROBLEM = "application/problem+json"


class Sure(Trust):
    """Believes a statement that names a known identity; the quote is another test's."""

    known: set[str]

    def verify(self, proof: OrchestratorProof, *, nonce: str, caller: str, at: float) -> Any:
        said = json.loads(b64decode(proof.statement))
        if said["nonce"] != nonce or said["identity"] not in self.known:
            raise VerificationFailed("not measured", code="quote-measurement")
        return SimpleNamespace(identity_key=bytes.fromhex(said["identity"]))


@dataclass
class House:
    """One orchestrator. `leads`: else it refuses unheard, as a standby does. `acts`: what it was asked for. `model`: what its sessions
    exported."""

    identity: PartyKey = field(default_factory=PartyKey.generate)
    leads: bool = True
    signs: bool = True
    proofs: int = 0
    acts: list[str] = field(default_factory=list)
    model: bytes | None = None

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        """As the middleware does: signed where that was asked for."""
        if not self.leads:
            return problem(503, "not-leader", "Unavailable")
        if request.url.path == "/v1/attestation":
            self.proofs += 1
            said = {"nonce": json.loads(request.content)["nonce"], "identity": self.identity.public.hex()}
            statement, quote = b64encode(json.dumps(said).encode()).decode(), {"quote": b64encode(b"q").decode()}
            return httpx2.Response(200, json={"statement": statement, "evidence": quote})
        self.acts.append(f"{request.method} {request.url.path}")
        plain = self._view(request)
        if not self.signs or not asks(request.headers.get("accept-signature", "").encode()):
            return plain
        return resigned(plain, self.identity, request.headers["signature"])

    def _view(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path.removeprefix("/v1/")
        if request.method == "DELETE":
            return httpx2.Response(204)
        if path.startswith(f"sessions/{NONE}"):
            return problem(404, "unknown-session", "Not found")
        if path.endswith("/model"):
            return problem(409, "model-not-ready", "Conflict") if self.model is None else streamed(self.model)
        if path.startswith("sessions/"):
            model = self.model
            exported = None if model is None else {"sha256": sha256(model).hex(), "size_bytes": len(model)}
            view = {"id": path.split("/")[1], "phase": "RUNNING", "model": exported}
            return httpx2.Response(200, json=view, headers={"etag": '"3"'})
        if path.startswith("programs/") and not path.endswith("/archive"):
            return httpx2.Response(200, json={"initial_weights": {}})
        if path == "parties":
            return httpx2.Response(200, json={"items": [ME], "next": None})
        return httpx2.Response(200, json=ME)


def streamed(model: bytes) -> httpx2.Response:
    """As a model comes: under its own digest."""
    return httpx2.Response(200, content=model, headers={"etag": f'"{sha256(model).hex()}"'})


def problem(status: int, code: str, title: str) -> httpx2.Response:
    document = {"status": status, "code": code, "title": title, "detail": f"{code}, it says"}
    return httpx2.Response(status, content=json.dumps(document).encode(), headers={"content-type": PROBLEM})


def resigned(answer: httpx2.Response, key: PartyKey, asked: str, **changes: Any) -> httpx2.Response:
    """The same answer, signed by this key as one to the request with this signature."""
    plain = {
        k: v for k, v in answer.headers.items() if k not in ("content-digest", "signature", "signature-input")
    } | changes.pop("headers", {})
    status, content = changes.get("status", answer.status_code), changes.get("content", answer.content)
    added = signed_fields(AnswerParts(status, plain, asked), sha256(content), key=key, created=1)
    return httpx2.Response(status, headers={**plain, **added}, content=content)


Deliver = Callable[[httpx2.Request], Awaitable[httpx2.Response]]
Hand = Callable[[httpx2.Request, Deliver], Awaitable[httpx2.Response]]


def no_such(status: int, code: str, title: str) -> Hand:
    async def hand(_request: httpx2.Request, _deliver: Deliver) -> httpx2.Response:
        return problem(status, code, title)

    return hand


class Wire(httpx2.AsyncBaseTransport):
    """The way to one address, on which `hand` sits. It passes proofs on, for else it hears nothing more."""

    def __init__(self, house: House) -> None:
        self.house: House | None = house
        self.hand: Hand | None = None
        self.seen: list[httpx2.Request] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await request.aread()
        if request.url.path == "/v1/attestation" or self.hand is None:
            return await self._deliver(request)
        return await self.hand(request, self._deliver)

    async def _deliver(self, request: httpx2.Request) -> httpx2.Response:
        self.seen.append(request)
        if self.house is None:
            raise httpx2.ConnectError("nobody is there", request=request)
        return self.house.answer(request)


async def at_once(_seconds: float) -> None:
    """No pause."""


def client_of(wires: dict[str, Wire], *identities: PartyKey) -> AsyncClient:
    """`CALLER`'s client that believes these identities, by these addresses."""
    peers = Peers(transports=dict(wires), sleep=at_once)
    return AsyncClient(",".join(wires), CALLER, trust=sure_of(*identities), peers=peers)


def sure_of(*identities: PartyKey) -> Sure:
    """Who believes these identities."""
    trust = Sure("nowhere")
    object.__setattr__(trust, "known", {key.public.hex() for key in identities})
    return trust


def commands_reach(patch: pytest.MonkeyPatch, wires: dict[str, Wire], *identities: PartyKey) -> None:
    """Commands believe these identities, by these addresses."""

    def client(url: str, key: Any, **more: Any) -> AsyncClient:
        return AsyncClient(url, key, peers=Peers(transports=dict(wires), sleep=at_once), **more)

    patch.setattr("gput.client.AsyncClient", client)
    patch.setattr("gput.config.trusted", lambda: sure_of(*identities))
    patch.setenv("GPUT_URL", ",".join(wires))
