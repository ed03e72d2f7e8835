"""The platform over HTTP: CVMs reach their enclave by token, the orchestrator its MUX by signature, nobody else anything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gpu_agent.platform.api import create_platform_app
from gpu_agent.platform.files import Installation
from gpu_agent.platform.manufacture import manufacture
from gpu_agent.platform.mux_control import MuxControl
from gpu_agent.platform.settings import PlatformSettings
from shared.attestation.collateral_store import CollateralStore
from shared.attestation.cpu_verifier import CpuPolicy, CpuReference, CpuRoots, VerifiedCvm, verify_cpu_evidence
from shared.crypto.signing import PartyKey
from shared.errors import (
    BadRequest,
    ConfigurationError,
    EmulationWarning,
    NotAuthenticated,
    NotFound,
    Unavailable,
    VerificationFailed,
)
from shared.names import CvmRole
from shared.service.clock import system_clock, system_entropy
from shared.service.configuration import configuration
from shared.service.evidence import EmulatedProvider, provider, register
from shared.service.guest import Guest
from shared.service.signatures import SignedAuth
from shared.wire.visit import Evidence

URL, AGENT = "http://127.0.0.1:4801", "http://127.0.0.1:4802"
DATA = bytes(range(64))


class Agent:
    """Stands for the GPU agent's MUX: records what it is told and who signed."""

    def __init__(self) -> None:
        self.requests: list[httpx2.Request] = []
        self.status = 200

    def transport(self) -> httpx2.MockTransport:
        return httpx2.MockTransport(self.answer)

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        return httpx2.Response(self.status, json={})


class World:
    def __init__(self, directory: Path) -> None:
        self.place = Installation(directory / "installation")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EmulationWarning)
            manufacture(
                self.place.root,
                ["gpu-0"],
                ["orchestrator", "holder-north", "holder-south"],
                make_device=lambda root, gpu: (root / "devices" / gpu).mkdir(parents=True, exist_ok=True),
                at=system_clock(),
            )
        self.orchestrator, self.agent = PartyKey.generate(), Agent()
        self.public = directory / "orchestrator.pub"
        self.public.write_bytes(self.orchestrator.public_pem)
        self.directory = directory

    def settings(self, **changes: Any) -> PlatformSettings:
        values = {
            "data_dir": self.directory / "data",
            "agent_url": AGENT,
            "state_dir": self.place.root,
            "orchestrator_key": self.public,
        }
        return PlatformSettings.load(**{**values, **changes})

    @asynccontextmanager
    async def running(self, **changes: Any) -> AsyncIterator[httpx2.ASGITransport]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EmulationWarning)
            app = create_platform_app(self.settings(**changes), URL, transports={AGENT: self.agent.transport()})
        async with app.router.lifespan_context(app):
            yield httpx2.ASGITransport(app=app)

    def cvm(self, name: str, transport: httpx2.AsyncBaseTransport, token: str | None = None) -> EmulatedProvider:
        with pytest.warns(EmulationWarning):
            return EmulatedProvider(
                f"{URL}/cvms/{name}", token or self.place.token(name).read_text(), transport=transport
            )

    def guest(self, role: CvmRole, cvm: EmulatedProvider, **changes: Any) -> Guest:
        """A service of this role in that CVM, configured as manufactured or otherwise."""
        settings = {"allow_emulated": True, "approve": "manual", **changes}
        return Guest(cvm, configuration(role, backend="emulated", trust_dir=self.place.trust, settings=settings))

    def judge(self, evidence: Evidence, role: CvmRole) -> VerifiedCvm:
        """What a peer with this installation's trust folder says."""
        roots = CpuRoots.load(self.place.cpu_roots)
        return verify_cpu_evidence(
            evidence, role=role, report_data=DATA, roots=roots, reference=CpuReference.load(self.place.reference),
            policy=CpuPolicy(roots=("EMULATED",), allow_emulated=True), at=system_clock(),
            collateral=CollateralStore.load(self.place.collateral_cache, roots.certificates),
        )  # fmt: skip


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_a_cvm_gets_a_quote_that_verifies_for_what_it_is(world: World) -> None:
    async with world.running() as transport:
        evidence = await world.cvm("holder-north", transport).quote(DATA)
        with pytest.raises(VerificationFailed) as unmeasured:
            world.judge(evidence, "data_holder")
        assert unmeasured.value.code == "cvm-measured-configuration"
        evidence = await world.guest("data_holder", world.cvm("holder-north", transport)).quote(DATA)
    assert world.judge(evidence, "data_holder").root_set == "EMULATED"
    with pytest.raises(VerificationFailed) as caught:
        world.judge(evidence, "orchestrator")
    assert caught.value.code == "cvm-measurement"


async def test_changed_code_gets_a_quote_but_not_belief(world: World, tmp_path: Path) -> None:
    altered = tmp_path / "orchestrator"
    altered.mkdir()
    (altered / "backdoor.py").write_text("print('hello')")
    async with world.running(cvms={"orchestrator": [altered]}) as transport:
        evidence = await world.guest("orchestrator", world.cvm("orchestrator", transport)).quote(DATA)
    with pytest.raises(VerificationFailed) as caught:
        world.judge(evidence, "orchestrator")
    assert caught.value.code == "cvm-measurement"


async def test_derived_keys_are_stable_and_bound(world: World, tmp_path: Path) -> None:
    async with world.running() as transport:
        cvm = world.cvm("orchestrator", transport)
        first = await cvm.derived_key("resume")
        assert len(first) == 32
        assert await cvm.derived_key("resume") == first
        others = [
            await cvm.derived_key("checkpoint"),
            await world.cvm("holder-north", transport).derived_key("resume"),
            await world.cvm("holder-south", transport).derived_key("resume"),
        ]
        with pytest.raises(BadRequest):
            await cvm.quote(b"short")
    async with world.running() as transport:
        assert await world.cvm("orchestrator", transport).derived_key("resume") == first
    altered = tmp_path / "code"
    altered.mkdir()
    (altered / "a.py").write_text("")
    async with world.running(cvms={"orchestrator": [altered]}) as transport:
        others.append(await world.cvm("orchestrator", transport).derived_key("resume"))
    second = World(tmp_path / "second")
    async with second.running() as transport:
        others.append(await second.cvm("orchestrator", transport).derived_key("resume"))
    revealed = {key.reveal() for key in [first, *others]}
    assert len(revealed) == 6


async def test_tokens_open_their_own_cvm_only(world: World) -> None:
    async with world.running() as transport:
        north = world.place.token("holder-north").read_text()
        for name, token in (("holder-south", north), ("orchestrator", "x"), ("holder-absent", north)):
            cvm = world.cvm(name, transport, token)
            with pytest.raises(NotAuthenticated):
                await cvm.quote(DATA)
            with pytest.raises(NotAuthenticated):
                await cvm.derived_key("resume")
        async with httpx2.AsyncClient(transport=transport, base_url=URL) as client:
            for what in ("quote", "launch", "extend", "derived-key"):
                answer = await client.post(f"/cvms/orchestrator/{what}", json={"report_data": DATA.hex()})
                assert (answer.status_code, answer.json()["code"]) == (401, "enclave-token")
            headers = {"Authorization": f"Bearer {north}"}
            launch = (await client.post("/cvms/holder-north/launch", headers=headers)).json()["launch"]
            good = {"launch": launch, "report_data": DATA.hex()}
            for body in ({**good, "report_data": "00"}, {**good, "mr_td": "00" * 48}, {"report_data": DATA.hex()}, {}):
                answer = await client.post("/cvms/holder-north/quote", json=body, headers=headers)
                assert answer.status_code == 422
            bad = {"launch": launch, "label": "resume", "recipient": "AAAA"}
            answer = await client.post("/cvms/holder-north/derived-key", json=bad, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (400, "bad-hpke-key")


async def test_the_orchestrator_switches_the_mux_and_the_agent_follows(world: World) -> None:
    async with world.running() as transport:
        auth = SignedAuth(world.orchestrator, system_clock, system_entropy)
        async with httpx2.AsyncClient(transport=transport, base_url=URL, auth=auth) as client:
            for port, switches in (("holder-north", 1), ("holder-north", 1), ("orchestrator", 2), (None, 3)):
                answer = await client.put("/v1/gpus/gpu-0/mux", json={"port": port})
                assert answer.json() == {"gpu": "gpu-0", "port": port, "switches": switches}
            assert (await client.get("/v1/gpus")).json()["items"][0]["port"] is None
            sent = world.agent.requests
            assert [json.loads(request.content)["port"] for request in sent] == [
                "holder-north",
                "holder-north",
                "orchestrator",
                None,
            ]
            platform = PartyKey.load(world.place.mux_key)
            assert all(platform.fingerprint in request.headers["signature-input"] for request in sent)
            assert {str(request.url) for request in sent} == {f"{AGENT}/v1/platform/gpus/gpu-0/mux"}
            for path, body, status in (
                ("/v1/gpus/gpu-9/mux", {"port": None}, 404),
                ("/v1/gpus/gpu-0/mux", {"port": "../x"}, 400),
                ("/v1/gpus/gpu-0/mux", {}, 422),
            ):
                assert (await client.put(path, json=body)).status_code == status
            assert len(sent) == 4


async def test_nobody_else_switches_and_nothing_is_replayed(world: World) -> None:
    async with world.running() as transport:
        foreign = SignedAuth(PartyKey.generate(), system_clock, system_entropy)
        async with httpx2.AsyncClient(transport=transport, base_url=URL) as client:
            unsigned = await client.put("/v1/gpus/gpu-0/mux", json={"port": "orchestrator"})
            stranger = await client.put("/v1/gpus/gpu-0/mux", json={"port": "orchestrator"}, auth=foreign)
            assert (unsigned.status_code, stranger.status_code) == (401, 401)
            request = client.build_request("PUT", "/v1/gpus/gpu-0/mux", json={"port": "orchestrator"})
            SignedAuth(world.orchestrator, system_clock, system_entropy).sign(request)
            assert (await client.send(request)).status_code == 200
            replayed = await client.send(request)
            assert (replayed.status_code, replayed.json()["code"]) == (401, "signature-replayed")
        assert len(world.agent.requests) == 1


async def test_a_switch_that_the_agent_refuses_is_not_in_force(world: World) -> None:
    async with world.running() as transport:
        auth = SignedAuth(world.orchestrator, system_clock, system_entropy)
        async with httpx2.AsyncClient(transport=transport, base_url=URL, auth=auth) as client:
            world.agent.status = 409
            assert (await client.put("/v1/gpus/gpu-0/mux", json={"port": "orchestrator"})).status_code >= 400
            assert (await client.get("/v1/gpus")).json()["items"] == [{"gpu": "gpu-0", "port": None, "switches": 0}]


async def test_mux_control_alone() -> None:
    told: list[tuple[str, str | None]] = []

    async def bind(gpu: str, port: str | None) -> None:
        told.append((gpu, port))

    control = MuxControl(["gpu-1", "gpu-0"], bind)
    assert (await control.switch("gpu-1", "holder-a")).switches == 1
    assert [(state.gpu, state.port) for state in control.states()] == [("gpu-0", None), ("gpu-1", "holder-a")]
    with pytest.raises(NotFound):
        await control.switch("gpu-2", None)
    for port in ("holder-", "platform", "holder-A", "orchestrator\n"):
        with pytest.raises(BadRequest):
            await control.switch("gpu-0", port)
    assert told == [("gpu-1", "holder-a")]


async def test_backends_are_by_name_and_never_fall_back() -> None:
    for uri in ("tdx:/dev/tdx_guest", "emulated", "http://127.0.0.1/cvms/x", ""):
        with pytest.raises(ConfigurationError) as caught:
            provider(uri, "t")
        assert caught.value.expected == "configfs-tsm:, emulated:"
    for uri in ("emulated:https://127.0.0.1:1/cvms/x", "emulated:http://127.0.0.1:1/x", "emulated:"):
        with pytest.raises(ConfigurationError):
            provider(uri, "t")
    with pytest.raises(ConfigurationError):
        register("emulated", lambda rest, secrets: EmulatedProvider(rest, secrets.token), derives_keys=True)
    with pytest.warns(EmulationWarning):
        absent = provider("emulated:http://127.0.0.1:9/cvms/orchestrator", "t")
    with pytest.raises(Unavailable) as unreachable:
        await absent.quote(DATA)
    assert unreachable.value.code == "enclave-unreachable"
    await absent.aclose()


@pytest.mark.parametrize(
    ("status", "body"), [(500, b"{}"), (200, b"no json"), (200, b"{}"), (200, b'{"sealed": "!"}'), (200, b"[]")]
)
async def test_a_broken_enclave_is_unavailable(status: int, body: bytes) -> None:
    transport = httpx2.MockTransport(lambda _request: httpx2.Response(status, content=body))
    with pytest.warns(EmulationWarning):
        cvm = EmulatedProvider(f"{URL}/cvms/orchestrator", "t", transport=transport)
    with pytest.raises(Unavailable):
        await cvm.derived_key("resume")
    if body != b"{}" or status != 200:
        with pytest.raises(Unavailable):
            await cvm.quote(DATA)


def test_an_incomplete_installation_does_not_start(world: World) -> None:
    (world.place.token("holder-north")).unlink()
    with pytest.raises(ConfigurationError), pytest.warns(EmulationWarning):
        create_platform_app(world.settings(), URL)
    with pytest.raises(ConfigurationError):
        create_platform_app(world.settings(state_dir=world.directory / "nowhere"), URL)


def test_a_bad_orchestrator_key_does_not_start(world: World) -> None:
    for content in (None, b"", b"nonsense"):
        world.public.unlink(missing_ok=True)
        if content is not None:
            world.public.write_bytes(content)
        with pytest.raises(ConfigurationError), pytest.warns(EmulationWarning):
            create_platform_app(world.settings(), URL)


@pytest.mark.processes
def test_the_process_serves_until_told_to_stop(world: World) -> None:
    environment = {
        **os.environ,
        "GPUT_PLATFORM_DATA_DIR": str(world.place.root),
        "GPUT_PLATFORM_AGENT_URL": AGENT,
        "GPUT_PLATFORM_ORCHESTRATOR_KEY": str(world.public),
    }
    with subprocess.Popen(
        [sys.executable, "-m", "gpu_agent.platform"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())["ready"]
            with httpx2.Client(base_url=ready) as client:
                assert client.get("/readyz").status_code == 200
                headers = {"Authorization": f"Bearer {world.place.token('orchestrator').read_text()}"}
                launch = client.post("/cvms/orchestrator/launch", headers=headers).json()["launch"]
                body = {"launch": launch, "report_data": DATA.hex()}
                answer = client.post("/cvms/orchestrator/quote", json=body, headers=headers)
                assert answer.json()["kind"] == "tdx-quote"
        finally:
            process.terminate()
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert b"EMULATED" in process.stderr.read()
