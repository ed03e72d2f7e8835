"""HTTP surface of the emulated CVMs: each one's private path to its launches and to its quoting enclave. Knows no MUX and no file.

Routes: GET and POST /cvms/{name}/launch, and POST /cvms/{name}/extend, /quote and /derived-key (bearer token of that CVM).
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Path
from pydantic import Field

from gpu_agent.platform.cvms import LAUNCH_BYTES, Cvms
from gpu_agent.platform.manufacture import NAME
from gpu_agent.platform.quoting_enclave import QuotingEnclave
from shared.attestation.one_time_keys import decoded
from shared.claims import Claim
from shared.claims.event_log import REGISTERS
from shared.claims.program import HexSha384
from shared.errors import NotAuthenticated
from shared.wire.visit import Base64, Evidence

Launch = Annotated[str, Field(pattern=rf"^[0-9a-f]{{{2 * LAUNCH_BYTES}}}$")]
CvmName = Annotated[str, Path(pattern=rf"^{NAME.pattern}$")]


class LaunchesAnswer(Claim):
    """How often this CVM was launched so far."""

    launches: int = Field(ge=0)


class LaunchRequest(Claim):
    """`after`: the launches before this one, so that an old request that is sent once more does nothing."""

    after: int = Field(ge=0, examples=[0])


class LaunchAnswer(Claim):
    """The number that names this launch to everything that follows."""

    launch: str


class ExtendRequest(Claim):
    """`before` is the value that the guest extends. 48 bytes each, hex."""

    launch: Launch = Field(examples=["ab" * LAUNCH_BYTES])
    register_index: int = Field(alias="register", ge=0, lt=REGISTERS, examples=[3])
    digest: HexSha384 = Field(examples=["5f" * 48])
    before: HexSha384 = Field(examples=["00" * 48])


class ExtendAnswer(Claim):
    """The register's value now."""

    value: HexSha384


class QuoteRequest(Claim):
    """64 bytes, hex."""

    launch: Launch = Field(examples=["ab" * LAUNCH_BYTES])
    report_data: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$", examples=["5f" * 64])]


class DerivedKeyRequest(Claim):
    """`recipient`: raw one-time HPKE public key."""

    launch: Launch = Field(examples=["ab" * LAUNCH_BYTES])
    label: Annotated[str, Field(min_length=1, max_length=120, examples=["gput/journal"])]
    recipient: Base64 = Field(examples=["AAEC" * 405 + "AA=="])


class DerivedKeyAnswer(Claim):
    """32 bytes sealed to the recipient."""

    sealed: Base64


@dataclass(frozen=True)
class Enclave:
    """Everything behind the CVMs' private paths: the quoting enclave, the CVMs it speaks for, and the collateral sent along."""

    quoting: QuotingEnclave
    cvms: Cvms
    collateral: bytes

    def evidence(self, name: str, launch: str, report_data: bytes) -> Evidence:
        """A quote of that CVM with its collateral. Raises: as `Cvms.running`, BadRequest."""
        quote = self.quoting.quote(self.cvms.running(name, launch), report_data)
        return Evidence(quote=base64.b64encode(quote).decode(), endorsements=base64.b64encode(self.collateral).decode())


def cvm_routes(enclave: Enclave, tokens: Mapping[str, str]) -> APIRouter:
    """A CVM's private path to its quoting enclave; the token stands for the hardware's isolation."""

    async def authenticated(name: CvmName, authorization: Annotated[str, Header()] = "") -> None:
        expected = f"Bearer {tokens[name]}" if name in tokens else ""
        if not expected or not hmac.compare_digest(authorization.encode(), expected.encode()):
            raise NotAuthenticated("the token is not this CVM's", code="enclave-token")

    router = APIRouter(prefix="/cvms/{name}", tags=["quoting enclave"], dependencies=[Depends(authenticated)])

    @router.get("/launch")
    async def launches(name: CvmName) -> LaunchesAnswer:
        """How often this CVM was launched so far."""
        return LaunchesAnswer(launches=enclave.cvms.launches(name))

    @router.post("/launch")
    async def launch(name: CvmName, wanted: LaunchRequest) -> LaunchAnswer:
        """Begin this CVM anew: its code is measured now, its registers are zero, whoever ran as it before is cut off."""
        mr_td = await asyncio.to_thread(enclave.cvms.measure, name)
        return LaunchAnswer(launch=enclave.cvms.launch(name, mr_td, wanted.after))

    @router.post("/extend")
    async def extend(name: CvmName, wanted: ExtendRequest) -> ExtendAnswer:
        """Extend a runtime register; the same again has no further effect."""
        digest, before = bytes.fromhex(wanted.digest), bytes.fromhex(wanted.before)
        value = enclave.cvms.extend(name, wanted.launch, wanted.register_index, digest, before)
        return ExtendAnswer(value=value.hex())

    @router.post("/quote")
    async def quote(name: CvmName, wanted: QuoteRequest) -> Evidence:
        """An EMULATED TDX quote over the caller's 64 bytes; all else is what the enclave measured."""
        return enclave.evidence(name, wanted.launch, bytes.fromhex(wanted.report_data))

    @router.post("/derived-key")
    async def derived_key(name: CvmName, wanted: DerivedKeyRequest) -> DerivedKeyAnswer:
        """A sealing key of this CVM's measurement and this installation."""
        running = enclave.cvms.running(name, wanted.launch)
        sealed = enclave.quoting.derived_key(running, wanted.label, decoded(wanted.recipient))
        return DerivedKeyAnswer(sealed=base64.b64encode(sealed).decode())

    return router
