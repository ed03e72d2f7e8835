"""HTTP surface of the untrusted platform: MUX control for the orchestrator, the quoting enclave for its CVMs. Knows no PKI.

Routes: PUT /v1/gpus/{gpu}/mux (RFC 9421, orchestrator's key), GET /v1/gpus, and POST /cvms/{name}/launch, /extend, /quote and
/derived-key (bearer token of that CVM).
"""

from __future__ import annotations

import asyncio
import base64
import hmac
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path as FilePath
from typing import Annotated

import httpx2
from fastapi import APIRouter, Depends, FastAPI, Header, Path
from pydantic import Field

from gpu_agent.mux_register import MuxRegister, register_of
from gpu_agent.platform.cvms import LAUNCH_BYTES, Cvms
from gpu_agent.platform.files import Installation, read_made, read_private
from gpu_agent.platform.manufacture import NAME, load_cvms
from gpu_agent.platform.measurement import installed_package, measure_code
from gpu_agent.platform.mux_api import mux_routes
from gpu_agent.platform.mux_control import Bind, MuxControl
from gpu_agent.platform.pki import QuotingKeys
from gpu_agent.platform.quoting_enclave import QuotingEnclave
from gpu_agent.platform.settings import PlatformSettings
from shared.attestation.one_time_keys import decoded
from shared.claims import Claim
from shared.claims.event_log import REGISTERS
from shared.claims.program import HexSha384
from shared.crypto.secret import Secret
from shared.crypto.signing import PartyKey, fingerprint, load_public
from shared.errors import BadRequest, ConfigurationError, NotAuthenticated
from shared.names import Role
from shared.service.app import add_routes, create_service_app
from shared.service.clock import Clock, Entropy, system_clock, system_entropy
from shared.service.evidence import MIN_TOKEN
from shared.service.http import PeerClient, Peers
from shared.service.migrations import upgrade
from shared.service.replay import ReplayWindow
from shared.service.signatures import KeyResolver, KnownKey, SignedAuth
from shared.service.store import Store
from shared.wire.visit import Base64, Evidence

VERSION = "1"
TITLE = "GPU Travelling platform (EMULATED)"
Launch = Annotated[str, Field(pattern=rf"^[0-9a-f]{{{2 * LAUNCH_BYTES}}}$")]
CvmName = Annotated[str, Path(pattern=rf"^{NAME.pattern}$")]


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


def load_enclave(
    place: Installation,
    overrides: Mapping[str, list[FilePath]],
    version: int = 4,
    entropy: Entropy = system_entropy,
) -> Enclave:
    """The installation's enclave; each CVM is measured when it is launched. `overrides` names other code folders for a CVM.

    Raises:
        ConfigurationError: nothing was manufactured, or a file is missing or damaged.
    """
    packages = load_cvms(place)
    if not packages or not overrides.keys() <= packages.keys():
        raise ConfigurationError(
            f"the installation {place.root} has no CVM called {', '.join(sorted(overrides.keys() - packages.keys()))}"
            if packages
            else f"{place.root} is no manufactured installation: it has no CVMs",
            code="installation-file",
            remedy="run `python -m gpu_agent.platform manufacture --dir … --cvms …` first, or correct state_dir",
        )

    def measure(name: str) -> bytes:
        return measure_code(overrides.get(name) or [installed_package(package) for package in packages[name]])

    measures = {name: partial(measure, name) for name in packages}
    keys = QuotingKeys(read_private(place.pck_key, "the PCK key"), read_made(place.pck_chain, "the PCK chain"))
    quoting = QuotingEnclave(keys, Secret(read_private(place.secret, "the installation secret")), version)
    return Enclave(quoting, Cvms(place.launches, measures, entropy), read_made(place.collateral, "the collateral"))


def create_platform_app(
    settings: PlatformSettings,
    base_url: str,
    *,
    transports: Mapping[str, httpx2.AsyncBaseTransport] | None = None,
    clock: Clock = system_clock,
) -> FastAPI:
    """The platform's application.

    Args:
        base_url: address that callers sign for.
        transports: of tests, by base URL.

    Raises:
        ConfigurationError: the installation is incomplete or a key file unusable.
    """
    place = settings.installation
    enclave = load_enclave(place, settings.cvms, settings.quote_version)
    tokens = {name: _token(place.token(name)) for name in enclave.cvms.names}
    key, orchestrator = PartyKey.load(place.mux_key), _orchestrator_key(settings.orchestrator_key)
    upgrade(settings.store_url, "gpu_agent.platform")
    store = Store(settings.store_url)
    peers = Peers(transports=transports or {}, entropy=system_entropy)
    agent = peers.peer(settings.agent_url, "agent", auth=SignedAuth(key, clock, system_entropy))

    registers = ExitStack()
    bind = _switch(settings.mux_registers, place.gpus(), agent, registers)

    @asynccontextmanager
    async def running(_app: FastAPI) -> AsyncIterator[None]:
        with registers:
            async with peers:
                yield

    app = create_service_app(
        TITLE,
        VERSION,
        settings=settings,
        store=store,
        lifespan=running,
        keys=_only(orchestrator),
        # Not durable before the act: a switch replayed right after a crash only misroutes ciphertext; a visit must not pay for it.
        replay=ReplayWindow(store, clock),
        base_url=base_url,
        clock=clock,
    )
    add_routes(app, mux_routes(MuxControl(place.gpus(), bind)))
    add_routes(app, cvm_routes(enclave, tokens))
    return app


def _switch(folder: FilePath | None, gpus: Iterable[str], agent: PeerClient, opened: ExitStack) -> Bind:
    if folder is None:

        async def tell(gpu: str, port: str | None) -> None:
            await agent.put_json(f"/v1/platform/gpus/{gpu}/mux", {"port": port})

        return tell
    try:
        registers = {gpu: opened.enter_context(closing(MuxRegister(register_of(folder, gpu)))) for gpu in gpus}
    except OSError as error:
        raise ConfigurationError(
            f"the MUXes' registers in {folder} cannot be made: {error.strerror}",
            code="mux-registers",
            remedy="Give this service a folder to write to in mux_registers, or unset it here and at the agent.",
        ) from None

    async def select(gpu: str, port: str | None) -> None:
        registers[gpu].select(port)

    return select


def _token(path: FilePath) -> str:
    token = read_private(path, "the token").decode("ascii", "replace").strip()
    if len(token) < MIN_TOKEN:  # an empty one would let anybody in
        raise ConfigurationError(
            f"the token {path} is {'empty' if not token else 'too short'}",
            code="installation-file",
            remedy="delete it and run `python -m gpu_agent.platform manufacture` again; then give the new one to its CVM",
        )
    return token


def _orchestrator_key(path: FilePath) -> bytes:
    try:
        return load_public(path.read_bytes())
    except (OSError, BadRequest) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigurationError(
            f"the orchestrator's public key {path} cannot be used: {why}",
            code="key-file",
            remedy="put the orchestrator's .pub there, or correct the setting orchestrator_key",
        ) from None


def _only(orchestrator: bytes) -> KeyResolver:
    known = KnownKey(orchestrator, "orchestrator", frozenset({Role.ORCHESTRATOR}))

    async def resolve(keyid: str) -> KnownKey | None:
        return known if keyid == fingerprint(orchestrator) else None

    return resolve


def cvm_routes(enclave: Enclave, tokens: Mapping[str, str]) -> APIRouter:
    """A CVM's private path to its quoting enclave; the token stands for the hardware's isolation."""

    async def authenticated(name: CvmName, authorization: Annotated[str, Header()] = "") -> None:
        expected = f"Bearer {tokens[name]}" if name in tokens else ""
        if not expected or not hmac.compare_digest(authorization.encode(), expected.encode()):
            raise NotAuthenticated("the token is not this CVM's", code="enclave-token")

    router = APIRouter(prefix="/cvms/{name}", tags=["quoting enclave"], dependencies=[Depends(authenticated)])

    @router.post("/launch")
    async def launch(name: CvmName) -> LaunchAnswer:
        """Begin this CVM anew: its code is measured now, its registers are zero, whoever ran as it before is cut off."""
        mr_td = await asyncio.to_thread(enclave.cvms.measure, name)
        return LaunchAnswer(launch=enclave.cvms.launch(name, mr_td))

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
        cvm = enclave.cvms.running(name, wanted.launch)
        sealed = enclave.quoting.derived_key(cvm, wanted.label, decoded(wanted.recipient))
        return DerivedKeyAnswer(sealed=base64.b64encode(sealed).decode())

    return router
