"""CVMs over the platform's API: measured at launch, extended and never set back, one process each, through restarts of the platform."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import httpx2
import pytest

from gpu_agent.platform.cvms import Cvms
from gpu_agent.platform.measurement import installed_package
from shared.attestation.quote import parse_quote
from shared.claims.event_log import ZERO, Event, extended
from shared.errors import ConfigurationError, Conflict, NotFound, Unavailable, VerificationFailed
from tests.platform.platform_world import DATA, World

A, B = b"\xaa" * 48, b"\xbb" * 48


async def test_a_running_cvm_survives_a_restart_of_the_platform(world: World) -> None:
    async with world.running() as transport:
        cvm = world.cvm("holder-north", transport)
        await world.guest("data_holder", cvm).record("session", {"session": "s_1"})
        key = await cvm.derived_key("journal")
    async with world.running() as transport:
        # The process lives on; only its connection is new.
        again = world.cvm("holder-north", transport)
        again._launch = cvm._launch
        assert await again.derived_key("journal") == key
        evidence = await again.quote(DATA)
    body = parse_quote(base64.b64decode(evidence.quote)).body
    assert body.rtmr3 == extended(ZERO, Event(register=3, type="session", content={"session": "s_1"}).digest)
    assert body.rtmr0 != ZERO


async def test_one_process_per_cvm_the_newest_counts(world: World) -> None:
    async with world.running() as transport:
        first, second = world.cvm("orchestrator", transport), world.cvm("orchestrator", transport)
        await first.quote(DATA)
        await second.extend(3, A, ZERO)
        for refused in (first.quote(DATA), first.extend(3, A, ZERO), first.derived_key("journal")):
            with pytest.raises(Conflict) as caught:
                await refused
            assert (caught.value.code, caught.value.got) == ("enclave-launch", "cvm-launch")
        assert (await second.registers())[3] == ZERO


async def test_an_old_launch_sent_once_more_cuts_nobody_off(world: World) -> None:
    """Whoever is on the way may keep requests and send them later: as it is for every other request to the enclave."""
    async with world.running() as transport:
        kept = Kept(transport)
        cvm = world.cvm("orchestrator", kept)
        await cvm.extend(3, A, ZERO)
        for request in list(kept.sent):
            answer = await transport.handle_async_request(request)
            assert (answer.status_code == 409) == (request.method == "POST" and request.url.path.endswith("/launch"))
        await cvm.extend(3, B, extended(ZERO, A))


async def test_a_launch_that_comes_twice_is_done_anew(world: World) -> None:
    """The refusal of the second is all that its sender hears."""
    async with world.running() as transport:
        twice = Kept(transport, twice=1)
        cvm = world.cvm("orchestrator", twice)
        await cvm.quote(DATA)
        assert [request.method for request in twice.sent] == ["GET", "POST", "GET", "POST", "POST"]
        always = world.cvm("orchestrator", Kept(transport, twice=100))
        with pytest.raises(Conflict) as caught:
            await always.quote(DATA)
        assert (caught.value.code, caught.value.got) == ("enclave-launch", "cvm-launched")


@pytest.mark.parametrize(
    "answer",
    ["[]", "{}", '{"launches": "1"}', '{"launches": 0, "launch": ""}', '{"launches": 0, "launch": 7}', "[" * 20_000],
)
async def test_a_launch_that_cannot_be_read_is_none(world: World, answer: str) -> None:
    def odd(_request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=answer)

    with pytest.raises(Unavailable) as caught:
        await world.cvm("orchestrator", httpx2.MockTransport(odd)).quote(DATA)
    assert caught.value.code == "enclave-unusable"


class Kept(httpx2.AsyncBaseTransport):
    """Keeps what is sent; the first `twice` launches reach the platform twice, and the second's answer is the one that comes back."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, twice: int = 0) -> None:
        self.inner, self.twice, self.sent = inner, twice, list[httpx2.Request]()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.sent.append(request)
        answer = await self.inner.handle_async_request(request)
        if self.twice and request.method == "POST" and request.url.path.endswith("/launch"):
            self.twice -= 1
            return await self.inner.handle_async_request(request)
        return answer


async def test_registers_are_extended_from_where_they_are(world: World) -> None:
    async with world.running() as transport:
        cvm = world.cvm("orchestrator", transport)
        await cvm.extend(1, A, ZERO)
        await cvm.extend(1, A, ZERO)  # the answer was lost: the same again
        await cvm.extend(1, B, extended(ZERO, A))
        for digest, before in ((A, ZERO), (B, ZERO), (A, B)):
            with pytest.raises(Conflict) as caught:
                await cvm.extend(1, digest, before)
            assert caught.value.got == "cvm-register"


@pytest.mark.parametrize("changed", [{"allow_emulated": False}, {"approve": "never"}])
async def test_a_changed_setting_is_no_accepted_configuration(world: World, changed: dict[str, object]) -> None:
    async with world.running() as transport:
        good = world.guest("data_holder", world.cvm("holder-north", transport), approve="policy")
        assert world.judge(await good.quote(DATA), "data_holder").events[2].content["approve"] == "policy"
        other = world.guest("data_holder", world.cvm("holder-north", transport), **changed)
        with pytest.raises(VerificationFailed) as caught:
            world.judge(await other.quote(DATA), "data_holder")
    assert (caught.value.code, "RTMR2" in caught.value.detail) == ("cvm-measured-configuration", True)
    assert json.dumps(next(iter(changed.values()))) in str(caught.value.got), (
        "the report says what was measured instead"
    )


async def test_a_guest_that_trusts_another_root_is_no_accepted_configuration(world: World) -> None:
    roots = world.place.trust / "cpu-roots.pem"
    async with world.running() as transport:
        whole = roots.read_bytes()
        roots.write_bytes(whole + b"\n# one more\n")
        guest = world.guest("orchestrator", world.cvm("orchestrator", transport))
        roots.write_bytes(whole)
        with pytest.raises(VerificationFailed) as caught:
            world.judge(await guest.quote(DATA), "orchestrator")
    assert (caught.value.code, "RTMR1" in caught.value.detail) == ("cvm-measured-configuration", True)


async def test_one_byte_of_code_fails_attestation(world: World, tmp_path: Path) -> None:
    """The installed packages, copied, and one byte of one file changed before the launch; measured at launch, not before."""
    trees = []
    for package in ("shared", "orchestrator"):
        trees.append(tmp_path / "code" / package)
        shutil.copytree(installed_package(package), trees[-1], ignore=shutil.ignore_patterns("__pycache__"))
    async with world.running(cvms={"orchestrator": trees}) as transport:
        same = world.guest("orchestrator", world.cvm("orchestrator", transport))
        assert world.judge(await same.quote(DATA), "orchestrator").mr_td
        file = trees[1] / "ids.py"
        file.write_bytes(file.read_bytes() + b"\n")
        changed = world.guest("orchestrator", world.cvm("orchestrator", transport))
        with pytest.raises(VerificationFailed) as caught:
            world.judge(await changed.quote(DATA), "orchestrator")
    assert caught.value.code == "cvm-measurement"


async def test_a_version_5_platform_is_believed_as_well(world: World) -> None:
    async with world.running(quote_version=5) as transport:
        evidence = await world.guest("data_holder", world.cvm("holder-north", transport)).quote(DATA)
    assert world.judge(evidence, "data_holder").tcb_status == "UpToDate"
    with pytest.raises(ConfigurationError):
        world.settings(quote_version=3)


def test_cvms_alone(tmp_path: Path) -> None:
    measures = {"orchestrator": lambda: A}
    cvms = Cvms(tmp_path, measures, lambda count: b"\x01" * count)
    for unknown in (lambda: cvms.measure("x"), lambda: cvms.launch("x", A, 0), lambda: cvms.running("x", "")):
        with pytest.raises(NotFound):
            unknown()
    with pytest.raises(Conflict):
        cvms.running("orchestrator", "")
    launch = cvms.launch("orchestrator", cvms.measure("orchestrator"), 0)
    cvms.extend("orchestrator", launch, 2, B, ZERO)
    read = Cvms(tmp_path, measures, lambda count: b"\x02" * count).running("orchestrator", launch)
    assert (read.mr_td, read.rtmrs) == (A, (ZERO, ZERO, extended(ZERO, B), ZERO))
    file = tmp_path / "orchestrator.json"
    again = Cvms(tmp_path, measures, lambda count: b"\x02" * count)
    assert again.launches("orchestrator") == 1
    with pytest.raises(Conflict) as caught:
        again.launch("orchestrator", B, 0)
    assert (caught.value.code, again.running("orchestrator", launch)) == ("cvm-launched", read), "nothing changed"
    assert again.launch("orchestrator", B, 1) != launch
    for damage in ("{", "{}", '{"launch": "x", "mr_td": "00", "rtmrs": []}', "[]"):
        file.write_text(damage)
        with pytest.raises(ConfigurationError):
            Cvms(tmp_path, measures, lambda count: bytes(count)).running("orchestrator", launch)
