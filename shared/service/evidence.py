"""Where a CVM gets its own evidence and sealing keys: backends by URI from an open table. Knows no verifier and no session.

    emulated:http://HOST:PORT/cvms/NAME     the platform's emulated quoting enclave

An unknown scheme fails; nothing falls back to another backend (law L10).
"""

from __future__ import annotations

import base64
import binascii
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import httpx2
from pydantic import ValidationError

from shared.crypto.derived_key import DERIVED_KEY_BYTES, derived_key_info
from shared.crypto.hpke import OneTimeKey
from shared.crypto.secret import Secret
from shared.errors import BadRequest, ConfigurationError, EmulationWarning, NotAuthenticated, Unavailable
from shared.wire.visit import Evidence

REPORT_DATA_BYTES = 64
TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 256 * 1024
MIN_TOKEN = 32
"""Characters: nobody must be able to guess one."""
_EMULATED = re.compile(r"(http://[^/?#]+)/cvms/([a-z0-9][a-z0-9-]{0,62})")


class EvidenceProvider(Protocol):
    """This CVM's way to its quoting enclave."""

    async def quote(self, report_data: bytes) -> Evidence:
        """A quote over 64 bytes. Raises: BadRequest, NotAuthenticated, Unavailable."""
        ...

    async def derived_key(self, label: str) -> Secret:
        """32 bytes bound to (machine, measured code, label). Raises: NotAuthenticated, Unavailable, VerificationFailed."""
        ...

    async def aclose(self) -> None:
        """Release connections."""
        ...


Factory = Callable[[str, str], EvidenceProvider]
"""(rest of the URI after the scheme, token) -> provider, or ConfigurationError."""
_BACKENDS: dict[str, Factory] = {}


def register(scheme: str, factory: Factory) -> None:
    """Add a backend. Raises: ConfigurationError when the scheme is taken: a backend cannot be replaced unseen."""
    if scheme in _BACKENDS:
        raise ConfigurationError(f"evidence backend {scheme} is registered already", code="evidence-backend")
    _BACKENDS[scheme] = factory


def provider(uri: str, token: str) -> EvidenceProvider:
    """The provider that `uri` names. Connects nothing.

    Raises:
        ConfigurationError: `evidence-backend`, an unknown scheme or a malformed URI.
    """
    scheme, separator, rest = uri.partition(":")
    factory = _BACKENDS.get(scheme) if separator else None
    if factory is None:
        raise ConfigurationError(
            f"no evidence backend is called {scheme!r}",
            code="evidence-backend",
            expected=", ".join(f"{name}:" for name in sorted(_BACKENDS)),
            remedy="name a backend that this installation has; there is no default",
        )
    return factory(rest, token)


def read_token(path: Path) -> str:
    """The token that stands for a CVM's private path to its quoting enclave. Raises: ConfigurationError."""
    remedy = "Point evidence_token_file at the token that the installation made for this CVM."
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigurationError(
            f"the evidence token {path} cannot be read: {why}", code="evidence-token", remedy=remedy
        ) from None
    if len(token) < MIN_TOKEN:
        raise ConfigurationError(
            f"the evidence token {path} is {'empty' if not token else 'too short'}",
            code="evidence-token",
            remedy=remedy,
        )
    return token


class EmulatedProvider:
    """Client of the platform's emulated quoting enclave; `token` stands for the CVM's private path to it."""

    def __init__(self, url: str, token: str, *, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        match = _EMULATED.fullmatch(url)
        if match is None:
            raise ConfigurationError(
                "an emulated evidence URI reads emulated:http://HOST:PORT/cvms/NAME", code="evidence-backend"
            )
        warnings.warn("this CVM's evidence is EMULATED and proves nothing", EmulationWarning, stacklevel=3)
        self._cvm = match[2]
        self._client = httpx2.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=TIMEOUT_S,
            transport=transport,
            trust_env=False,
        )

    async def quote(self, report_data: bytes) -> Evidence:
        """A quote over 64 bytes. Raises: BadRequest, NotAuthenticated, Unavailable."""
        if len(report_data) != REPORT_DATA_BYTES:
            raise BadRequest(f"report data has 64 bytes, got {len(report_data)}", code="bad-report-data")
        answer = await self._post("quote", {"report_data": report_data.hex()})
        try:
            return Evidence.model_validate(answer)
        except ValidationError:
            raise _unusable("its quote is malformed") from None

    async def derived_key(self, label: str) -> Secret:
        """32 bytes bound to (installation, measured code, CVM, label), sealed to a one-time key on the way.

        Raises: NotAuthenticated, Unavailable, VerificationFailed.
        """
        key = OneTimeKey.generate()
        answer = await self._post("derived-key", {"label": label, "recipient": base64.b64encode(key.public).decode()})
        try:
            sealed = base64.b64decode(answer["sealed"], validate=True)
        except (KeyError, TypeError, binascii.Error, ValueError):
            raise _unusable("its derived key is malformed") from None
        opened = key.open(sealed, derived_key_info(self._cvm, label, key.public))
        if len(opened) != DERIVED_KEY_BYTES:
            raise _unusable("its derived key has a wrong length")
        return Secret(opened)

    async def aclose(self) -> None:
        """Release connections."""
        await self._client.aclose()

    async def _post(self, what: str, body: dict[str, str]) -> Any:
        try:
            response = await self._client.post(what, json=body)
        except httpx2.HTTPError as error:
            raise Unavailable(
                f"the quoting enclave at {self._client.base_url} does not answer: {type(error).__name__}",
                code="enclave-unreachable",
                remedy="Start the platform, or correct the address in the setting evidence.",
            ) from None
        if response.status_code in (401, 403):
            raise NotAuthenticated(
                f"the quoting enclave does not accept the token of the CVM {self._cvm}",
                code="enclave-token",
                remedy="Point evidence_token_file at the token that manufacturing made for this CVM.",
            )
        if response.status_code != 200 or len(response.content) > MAX_ANSWER_BYTES:
            raise _unusable(f"it answered {response.status_code} with {len(response.content)} bytes")
        try:
            return response.json()
        except ValueError:
            raise _unusable("its answer is not JSON") from None


def _unusable(why: str) -> Unavailable:
    return Unavailable(f"the quoting enclave is of no use: {why}", code="enclave-unusable")


register("emulated", EmulatedProvider)
