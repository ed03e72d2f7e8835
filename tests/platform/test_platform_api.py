"""The platform over HTTP: CVMs reach their enclave by token, the orchestrator its MUX by signature, nobody else anything."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from gpu_agent.hardware.mux import NOBODY, Selected
from gpu_agent.mux_register import SelectedPort, register_of
from gpu_agent.platform.mux_control import MuxControl
from shared.crypto.signing import PartyKey
from shared.errors import (
    BadRequest,
    NotAuthenticated,
    NotFound,
    VerificationFailed,
)
from shared.service import data_dir
from shared.service.clock import system_clock, system_entropy
from shared.service.signatures import SignedAuth
from tests.platform.platform_world import AGENT, DATA, URL, World


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


async def test_a_full_disk_is_said_before_anything_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        world.running() as transport,
        httpx2.AsyncClient(transport=transport, base_url=URL) as client,
    ):
        assert (await client.get("/readyz")).status_code == 200
        monkeypatch.setattr(data_dir, "MARGIN_BYTES", 1 << 60)
        answer = await client.get("/readyz")
    assert answer.status_code == 503
    assert "Free space" in answer.json()["checks"]["data_dir"]


@pytest.mark.parametrize(
    "path", ["PUT /v1/gpus/gpu-0/mux", "POST /cvms/orchestrator/quote", "POST /cvms/orchestrator/launch"]
)
async def test_a_long_body_is_refused_before_it_is_taken_apart(world: World, path: str) -> None:
    """No request here is longer than a key; 4 MiB of empty lists held the event loop for a fifth of a second, without any key."""
    method, _, where = path.partition(" ")
    async with world.running() as transport, httpx2.AsyncClient(transport=transport, base_url=URL) as client:
        answer = await client.request(
            method, where, content=b"[" + b"[]," * 100_000, headers={"content-type": "application/json"}
        )
    assert (answer.status_code, answer.json()["code"]) == (413, "body-too-large")


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
            answer = await client.get("/cvms/orchestrator/launch")
            assert (answer.status_code, answer.json()["code"]) == (401, "enclave-token")
            for what in ("quote", "launch", "extend", "derived-key"):
                answer = await client.post(f"/cvms/orchestrator/{what}", json={"report_data": DATA.hex()})
                assert (answer.status_code, answer.json()["code"]) == (401, "enclave-token")
            headers = {"Authorization": f"Bearer {north}"}
            launch = (await client.post("/cvms/holder-north/launch", json={"after": 0}, headers=headers)).json()[
                "launch"
            ]
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


async def test_beside_the_agent_the_platform_switches_by_register_and_asks_nobody(world: World) -> None:
    folder = world.directory / "mux"
    with closing(SelectedPort(register_of(folder, "gpu-0"))) as gpu:
        for again in (False, True):
            async with world.running(mux_registers=folder) as transport:
                auth = SignedAuth(world.orchestrator, system_clock, system_entropy)
                async with httpx2.AsyncClient(transport=transport, base_url=URL, auth=auth) as client:
                    assert gpu() == (Selected("orchestrator", 2) if again else NOBODY)
                    for port, switches in (("holder-north", 1), ("holder-north", 1), ("orchestrator", 2)):
                        answer = await client.put("/v1/gpus/gpu-0/mux", json={"port": port})
                        assert answer.json() == {"gpu": "gpu-0", "port": port, "switches": switches}
                        assert gpu() == Selected(port, switches + 2 * again)
                    for path, port in (("/v1/gpus/gpu-9/mux", "holder-north"), ("/v1/gpus/gpu-0/mux", "../x")):
                        assert (await client.put(path, json={"port": port})).status_code in (400, 404)
                    assert (await client.get("/v1/gpus")).json()["items"][0]["port"] == "orchestrator"
    assert [file.name for file in folder.iterdir()] == ["gpu-0.mux"]
    assert world.agent.requests == []


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
