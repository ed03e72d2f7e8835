"""HTTP surface of the untrusted platform: MUX control for the orchestrator, the quoting enclave for its CVMs. Knows no PKI.

Routes: those of `mux_api` (RFC 9421, orchestrator's key) and of `cvm_api` (bearer token of that CVM).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import ExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path as FilePath

import httpx2
from fastapi import FastAPI

from gpu_agent.mux_register import MuxRegister, register_of
from gpu_agent.platform.cvm_api import Enclave, cvm_routes
from gpu_agent.platform.cvms import Cvms
from gpu_agent.platform.files import Installation, read_made, read_private
from gpu_agent.platform.manufacture import load_cvms
from gpu_agent.platform.measurement import installed_package, measure_code
from gpu_agent.platform.mux_api import mux_routes
from gpu_agent.platform.mux_control import Bind, MuxControl
from gpu_agent.platform.pki import QuotingKeys
from gpu_agent.platform.quoting_enclave import QuotingEnclave
from gpu_agent.platform.settings import PlatformSettings
from shared.crypto.secret import Secret
from shared.crypto.signing import PartyKey, fingerprint, load_public
from shared.errors import BadRequest, ConfigurationError
from shared.names import Role
from shared.service.app import SHORT_BODY, add_routes, create_service_app
from shared.service.clock import Clock, Entropy, system_clock, system_entropy
from shared.service.data_dir import Room
from shared.service.evidence import MIN_TOKEN
from shared.service.http import PeerClient, Peers
from shared.service.migrations import upgrade
from shared.service.replay import ReplayWindow
from shared.service.signatures import KeyResolver, KnownKey, SignedAuth
from shared.service.store import Store

VERSION = "1"
TITLE = "GPU Travelling platform (EMULATED)"


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
        checks={"data_dir": Room(settings.data_dir).check},
        lifespan=running,
        keys=_only(orchestrator),
        # Not durable before the act: a switch replayed right after a crash only misroutes ciphertext; a visit must not pay for it.
        replay=ReplayWindow(store, clock),
        base_url=base_url, clock=clock, longest_body=SHORT_BODY,
    )  # fmt: skip
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
