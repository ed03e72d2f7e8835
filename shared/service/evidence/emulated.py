"""Backend `emulated:http://HOST:PORT/cvms/NAME`: client of the platform's emulated quoting enclave. Knows no verifier."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import warnings
from typing import Any, TypeVar

import httpx2
from pydantic import ValidationError

from shared.claims.event_log import REGISTERS, ZERO, extended
from shared.crypto.derived_key import DERIVED_KEY_BYTES, derived_key_info
from shared.crypto.hpke import OneTimeKey
from shared.crypto.secret import Secret
from shared.errors import BadRequest, ConfigurationError, Conflict, EmulationWarning, NotAuthenticated, Unavailable
from shared.service.answers import UNCOMPRESSED, BoundedAnswers, answers_within
from shared.service.evidence.registry import REPORT_DATA_BYTES, EvidenceProvider, GuestSecrets, register
from shared.service.transport import HttpTransport
from shared.wire.visit import Evidence

TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 256 * 1024
LAUNCHES_TRIED = 4
_T = TypeVar("_T", int, str)
_CODE = re.compile(r"[a-z0-9-]{1,64}")
_EMULATED = re.compile(r"(http://[^/?#]+)/cvms/([a-z0-9][a-z0-9-]{0,62})")


class EmulatedProvider:
    """Client of the platform's emulated quoting enclave; `token` stands for the CVM's private path to it.

    The process is the confidential VM: its first call launches the CVM, which measures its code and clears its registers.
    """

    def __init__(self, url: str, token: str, *, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        match = _EMULATED.fullmatch(url)
        if match is None:
            raise ConfigurationError(
                "an emulated evidence URI reads emulated:http://HOST:PORT/cvms/NAME", code="evidence-backend"
            )
        warnings.warn("this CVM's evidence is EMULATED and proves nothing", EmulationWarning, stacklevel=3)
        self._cvm, self._launch, self._launching = match[2], "", asyncio.Lock()
        self._client = httpx2.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {token}", **UNCOMPRESSED},
            timeout=TIMEOUT_S,
            transport=BoundedAnswers(transport or HttpTransport()),
            trust_env=False,
        )

    async def quote(self, report_data: bytes) -> Evidence:
        """A quote over 64 bytes. Raises: BadRequest, NotAuthenticated, Unavailable."""
        if len(report_data) != REPORT_DATA_BYTES:
            raise BadRequest(f"report data has 64 bytes, got {len(report_data)}", code="bad-report-data")
        answer = await self._call("quote", {"report_data": report_data.hex()})
        try:
            return Evidence.model_validate(answer)
        except ValidationError:
            raise _unusable("its quote is malformed") from None

    async def registers(self) -> dict[int, bytes]:
        """All four, zero since the launch. Raises: NotAuthenticated, Unavailable."""
        await self._launched()
        return dict.fromkeys(range(REGISTERS), ZERO)

    async def relaunch(self) -> bool:
        """The next call launches the CVM again: another process may have taken its place since."""
        async with self._launching:
            self._launch = ""
        return True

    async def extend(self, register: int, digest: bytes, before: bytes) -> None:
        """Extend a register. Raises: NotAuthenticated, Unavailable, Conflict."""
        body = {"register": str(register), "digest": digest.hex(), "before": before.hex()}
        answer = await self._call("extend", body)
        if not isinstance(answer, dict) or answer.get("value") != extended(before, digest).hex():
            raise _unusable("it extended a register otherwise than it was told")

    async def derived_key(self, label: str) -> Secret:
        """32 bytes bound to (installation, measured code, CVM, label), sealed to a one-time key on the way.

        Raises: NotAuthenticated, Unavailable, VerificationFailed.
        """
        key = OneTimeKey.generate()
        answer = await self._call("derived-key", {"label": label, "recipient": base64.b64encode(key.public).decode()})
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

    async def _launched(self) -> str:
        async with self._launching:
            if not self._launch:
                self._launch = await self._launch_anew()
            return self._launch

    async def _launch_anew(self) -> str:
        """Another may launch it in between, and a request that comes twice is refused once: then anew."""
        for _ in range(LAUNCHES_TRIED - 1):
            try:
                return await self._launch_next()
            except Conflict as error:
                if error.got != "cvm-launched":
                    raise
        return await self._launch_next()

    async def _launch_next(self) -> str:
        """After the launches that there were: one that the network brings again, or late, must not cut off who runs by then."""
        after = _field(await self._exchange("GET", "launch"), "launches", int)
        return _field(await self._exchange("POST", "launch", {"after": after}), "launch", str)

    async def _call(self, what: str, body: dict[str, str]) -> Any:
        return await self._exchange("POST", what, {"launch": await self._launched(), **body})

    async def _exchange(self, method: str, what: str, body: dict[str, Any] | None = None) -> Any:
        try:
            response = await self._client.request(method, what, json=body, extensions=answers_within(MAX_ANSWER_BYTES))
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
        if response.status_code == 409:
            raise Conflict(
                f"the quoting enclave knows another {self._cvm} than this process",
                code="enclave-launch",
                got=_problem_code(response),
                remedy="Run one process per CVM, and restart this one.",
            )
        if response.status_code != 200:
            raise _unusable(f"it answered {response.status_code} with {len(response.content)} bytes")
        try:
            return response.json()
        except (ValueError, RecursionError):
            raise _unusable("its answer is not JSON") from None


def _field(answer: Any, name: str, kind: type[_T]) -> _T:
    value = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(value, kind) or value == "":
        raise _unusable(f"its {name} is malformed")
    return value


def _problem_code(response: httpx2.Response) -> str:
    """The stable code in a problem document; nothing else of it is passed on."""
    try:
        code = response.json()["code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return code if isinstance(code, str) and _CODE.fullmatch(code) else ""


def _unusable(why: str) -> Unavailable:
    return Unavailable(f"the quoting enclave is of no use: {why}", code="enclave-unusable")


def _make(rest: str, secrets: GuestSecrets) -> EvidenceProvider:
    if not secrets.token:
        raise ConfigurationError(
            "an emulated CVM needs its token",
            code="evidence-token",
            remedy="set evidence_token_file to the token that manufacturing made for this CVM",
        )
    return EmulatedProvider(rest, secrets.token)


register("emulated", _make, derives_keys=True)
