"""The client of a RIM service: off unless named, and nothing it brings is more than bytes to be judged."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from shared.attestation.gpu_policy import GpuTrust
from shared.errors import ConfigurationError, NotFound, Unavailable
from shared.service.rim_fetcher import MAX_ANSWER_BYTES, rim_fetcher
from shared.service.settings import ServiceSettings
from tests.attestation.gpu_evidence_world import GpuWorld

URL = "https://rims.invalid/v1/rim"
Handler = Callable[[httpx2.Request], httpx2.Response]


def fetch(handler: Handler, name: str = "NV_X") -> bytes:
    fetcher = rim_fetcher(URL, transport=httpx2.MockTransport(handler))
    assert fetcher is not None
    return fetcher(name)


def test_nothing_is_fetched_unless_a_service_is_named() -> None:
    assert ServiceSettings.model_fields["rim_service"].default is None
    assert rim_fetcher(None) is None
    for bad in ("", "nvidia", "file:///etc/passwd", "ftp://host/"):
        with pytest.raises(ConfigurationError):
            rim_fetcher(bad)


def test_a_manifest_by_its_name() -> None:
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        return httpx2.Response(
            200, json={"id": "NV_X", "rim": base64.b64encode(b"<xml/>").decode(), "sha256": "", "request_id": ""}
        )

    assert fetch(answer) == b"<xml/>"
    assert asked == [f"{URL}/NV_X"]


def refuse(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ConnectError("no route")


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda _: httpx2.Response(404), NotFound),
        (lambda _: httpx2.Response(500), Unavailable),
        (lambda _: httpx2.Response(302, headers={"location": "http://elsewhere.invalid"}), Unavailable),
        (lambda _: httpx2.Response(200, content=b"{"), Unavailable),
        (lambda _: httpx2.Response(200, json=[]), Unavailable),
        (lambda _: httpx2.Response(200, json={"id": "NV_X"}), Unavailable),
        (lambda _: httpx2.Response(200, json={"id": "NV_X", "rim": "*"}), Unavailable),
        (lambda _: httpx2.Response(200, json={"id": "NV_X", "rim": 5}), Unavailable),
        (lambda _: httpx2.Response(200, json={"id": "NV_Y", "rim": ""}), Unavailable),
        (lambda _: httpx2.Response(200, content=b" " * (MAX_ANSWER_BYTES + 1)), Unavailable),
        (refuse, Unavailable),
    ],
)
def test_answers_of_no_use(answer: Handler, error: type[Exception]) -> None:
    with pytest.raises(error):
        fetch(answer)


def test_a_fetched_manifest_makes_a_verification_complete(tmp_path: Path) -> None:
    """Through the trust folder: absent, fetched, judged, kept; offline it stays absent."""
    world = GpuWorld.make(tmp_path)
    published = {path.stem: path.read_bytes() for path in world.rims.values()}
    for path in world.rims.values():
        path.unlink()

    def answer(request: httpx2.Request) -> httpx2.Response:
        name = request.url.path.rsplit("/", 1)[1]
        body = {"id": name, "rim": base64.b64encode(published[name]).decode()}
        return httpx2.Response(200, content=json.dumps(body))

    offline = world.examine().examination
    assert offline.find("driver-rim").code == "gpu-rim-missing"
    trust = GpuTrust.load(tmp_path / "trust", rim_fetcher(URL, transport=httpx2.MockTransport(answer)))
    assert world.verify(trust=trust).device == world.rot.device
    assert {path.stem for path in (tmp_path / "trust" / "rim").iterdir()} == set(published)
    assert world.verify().device == world.rot.device


def test_nobody_is_asked_on_the_word_of_a_report_that_no_known_device_signed(tmp_path: Path) -> None:
    """Its versions are whatever its writer likes: each would be a question to the service, as often as anybody sends one."""
    world, asked = GpuWorld.make(tmp_path), list[str]()
    for path in world.rims.values():
        path.unlink()

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.path)
        return httpx2.Response(404)

    trust = GpuTrust.load(tmp_path / "trust", rim_fetcher(URL, transport=httpx2.MockTransport(answer)))
    foreign, stranger = (
        world.resigned(ec.generate_private_key(ec.SECP384R1())),
        GpuWorld.make(tmp_path / "other", seed=2),
    )
    for report, chain in ((foreign, None), (stranger.report(), stranger.rot.chain_pem)):
        found = world.examine(report, chain, trust=trust).examination.find("driver-rim")
        assert found.code == "gpu-rim-missing"
        assert "no known device signed" in found.reason
    assert asked == []
    assert world.examine(trust=trust).examination.find("driver-rim").code == "gpu-rim-missing"
    assert len(asked) == 2
