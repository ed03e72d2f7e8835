"""The client: what it repeats, what it does not, and that refusals come back as what they were."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable

import httpx2
import pytest

from shared.errors import GputError, NotAuthenticated, Refused, Unavailable
from shared.service.http import PeerClient, Peers
from shared.service.signatures import SignedAuth
from tests.service.service_world import BASE_URL, OWNER, FakeClock, World

Handler = Callable[[httpx2.Request], httpx2.Response]


def client_of(handler: Handler, *, signed: bool = False) -> PeerClient:
    async def sleep(_seconds: float) -> None:
        return

    transport = httpx2.MockTransport(handler)
    peers = Peers(transports={BASE_URL: transport}, sleep=sleep)
    auth = SignedAuth(OWNER, FakeClock(), os.urandom) if signed else None
    return peers.peer(BASE_URL, "agent", auth=auth)


def failing(times: int, error: type[httpx2.TransportError], seen: list[httpx2.Request]) -> Handler:
    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        if len(seen) <= times:
            raise error("broken", request=request)
        return httpx2.Response(200, json={"ok": True})

    return handle


@pytest.mark.parametrize("error", [httpx2.ConnectError, httpx2.ReadError, httpx2.RemoteProtocolError])
async def test_a_broken_connection_is_repeated_where_safe(error: type[httpx2.TransportError]) -> None:
    for act in (
        lambda client: client.get_json("/x"),
        lambda client: client.put_json("/x", {"a": 1}),
        lambda client: client.post_json("/x", {"a": 1}, idempotency_key="k"),
    ):
        seen: list[httpx2.Request] = []
        assert await act(client_of(failing(3, error, seen))) == {"ok": True}
        assert len(seen) == 4
        seen.clear()
        with pytest.raises(Unavailable):
            await act(client_of(failing(4, error, seen)))
        assert len(seen) == 4


async def chunks() -> AsyncIterator[bytes]:
    yield b"x"


async def test_what_may_have_happened_is_not_repeated() -> None:
    for act, error in (
        (lambda client: client.post_json("/x", {}), httpx2.ReadError),
        (lambda client: client.get_json("/x"), httpx2.ReadTimeout),
        (lambda client: client.post_json("/x", {}, idempotency_key="k"), httpx2.ReadTimeout),
        (lambda client: client.request("PUT", "/x", content=chunks()), httpx2.ConnectError),
        (lambda client: client.request("GET", "/x", attempts=1), httpx2.ConnectError),
    ):
        seen: list[httpx2.Request] = []
        with pytest.raises(Unavailable):
            await act(client_of(failing(9, error, seen)))
        assert len(seen) == 1


async def test_what_found_no_connection_free_was_not_sent_and_says_so() -> None:
    seen: list[httpx2.Request] = []
    with pytest.raises(Unavailable, match=r"agent at .* was not asked, since too many requests") as caught:
        await client_of(failing(9, httpx2.PoolTimeout, seen)).get_json("/x")
    assert caught.value.code == "peer-unreachable"
    assert len(seen) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308, 304])
async def test_a_redirect_is_not_taken_for_done(status: int) -> None:
    """A proxy that sends http to https answers so; a removal that it answered removed nothing."""
    seen: list[httpx2.Request] = []

    def redirect(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(status, headers={"location": "https://gput.example/x\x1b[2J" + "y" * 1000})

    async def streamed(client: PeerClient) -> None:
        async with client.stream("GET", "/x"):
            pytest.fail("what redirects has no answer to be read")

    for act in (
        lambda client: client.request("DELETE", "/x"),
        lambda client: client.put_json("/x", {"a": 1}),
        lambda client: client.post_json("/x", {}, idempotency_key="k"),
        streamed,
    ):
        seen.clear()
        with pytest.raises(Unavailable) as refused:
            await act(client_of(redirect))
        assert refused.value.code == "peer-unintelligible"
        assert "redirects" in refused.value.detail
        assert "https://gput.example/x" in refused.value.detail
        assert refused.value.detail.isprintable()
        assert len(refused.value.detail) < 400
        assert len(seen) == 1


async def test_every_attempt_is_signed_anew() -> None:
    seen: list[httpx2.Request] = []
    await client_of(failing(1, httpx2.ReadError, seen), signed=True).put_json("/x", {"a": 1})
    first, second = (request.headers["signature-input"] for request in seen)
    assert first != second


async def test_refusals_come_back_with_code_and_retry_after(world: World) -> None:
    async with Peers(transports={BASE_URL: httpx2.ASGITransport(app=world.app)}) as peers:
        stranger = peers.peer(BASE_URL, "orchestrator")
        with pytest.raises(NotAuthenticated, match="orchestrator: the request is not signed") as unsigned:
            await stranger.get_json("/v1/whoami")
        assert unsigned.value.code == "signature-missing"
        owner = peers.peer(BASE_URL, "orchestrator", auth=SignedAuth(OWNER, world.clock, os.urandom))
        assert (await owner.get_json("/v1/whoami"))["name"] == "olga"
        with pytest.raises(Refused) as refused:
            await owner.post_json("/v1/things", {"name": "forbidden", "count": 1}, idempotency_key="k")
        assert (refused.value.code, refused.value.remedy, refused.value.expected) == ("no-such-thing", "Ask.", "a")
        with pytest.raises(GputError) as later:
            await owner.get_json("/v1/refused")
        assert (later.value.code, later.value.retry_after_s) == ("odd", 7.0)
        async with owner.stream("GET", "/v1/whoami") as response:
            assert b"olga" in await response.aread()
        with pytest.raises(GputError):
            async with owner.stream("GET", "/v1/refused"):
                pass


async def test_an_answer_that_is_not_json_is_named() -> None:
    with pytest.raises(Unavailable, match="not JSON") as caught:
        await client_of(lambda _request: httpx2.Response(200, content=b"<html>")).get_json("/x")
    assert caught.value.code == "peer-unintelligible"
    assert await client_of(lambda _request: httpx2.Response(204)).get_json("/x") is None
    assert (
        await client_of(lambda _request: httpx2.Response(200, content=b"\x01")).post_bytes("/x", b"a", "a/b") == b"\x01"
    )


async def _nobody_waits(_seconds: float) -> None:
    return


def two(first: Handler, second: Handler) -> PeerClient:
    urls = ("http://one.test", "http://two.test")
    transports = {url: httpx2.MockTransport(handler) for url, handler in zip(urls, (first, second), strict=True)}
    return Peers(transports=transports, sleep=_nobody_waits).peer(", ".join(urls), "the pair")


def answering(seen: list[str]) -> Handler:
    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(f"{request.url.host} {request.content.decode()}")
        return httpx2.Response(200, json={"ok": True})

    return handle


def not_leading(seen: list[str]) -> Handler:
    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(f"{request.url.host} refused")
        return httpx2.Response(503, json={"code": "not-leader", "title": "Unavailable"}, headers={"retry-after": "1"})

    return handle


async def test_who_does_not_lead_is_passed_over_and_remembered() -> None:
    seen: list[str] = []
    client = two(not_leading(seen), answering(seen))
    for number in (1, 2):  # also a call that is not repeatable: the first one has done nothing
        assert await client.post_json("/x", {"a": number}) == {"ok": True}
    assert seen == ["one.test refused", 'two.test {"a":1}', 'two.test {"a":2}']


async def test_who_cannot_be_reached_is_passed_over_and_a_broken_call_is_not_made_twice() -> None:
    seen: list[str] = []
    for error, answered in ((httpx2.ConnectError, True), (httpx2.ReadError, False)):
        client = two(failing(9, error, []), answering(seen))
        if answered:
            assert await client.post_json("/x", {"a": 1}) == {"ok": True}
        else:
            with pytest.raises(Unavailable, match=r"one\.test"):
                await client.post_json("/x", {"a": 2})
            assert await client.post_json("/x", {"a": 3}) == {"ok": True}, "but the next call goes elsewhere"
    assert seen == ['two.test {"a":1}', 'two.test {"a":3}']


async def test_nobody_leads() -> None:
    seen: list[str] = []
    client = two(not_leading(seen), not_leading(seen))
    with pytest.raises(Unavailable) as caught:
        await client.post_json("/x", {"a": 1})
    assert (caught.value.code, caught.value.retry_after_s, len(seen)) == ("not-leader", 1.0, 2)


@pytest.mark.parametrize("error", [None, httpx2.ConnectError, httpx2.ReadError, httpx2.ReadTimeout])
async def test_a_stream_passes_over_who_does_not_lead_or_answer(error: type[httpx2.RequestError] | None) -> None:
    seen: list[str] = []
    there = not_leading([]) if error is None else failing(9, error, [])
    client = two(there, answering(seen))
    for _ in range(2):
        async with client.stream("GET", "/x") as answer:
            assert (await answer.aread()) == b'{"ok":true}'
    assert seen == ["two.test "] * 2


async def test_a_stream_is_asked_for_once_at_each_address() -> None:
    seen: list[str] = []
    for first, code in ((not_leading(seen), "not-leader"), (a_proxy(502, seen), "unavailable")):
        with pytest.raises(Unavailable) as caught:
            async with two(first, first).stream("GET", "/x"):
                pytest.fail("nobody answers")
        assert (caught.value.code, len(seen)) == (code, 2)
        seen.clear()


async def test_a_stream_that_broke_off_after_it_began_is_its_reader_s_to_take_up() -> None:
    seen: list[str] = []
    client = two(answering(seen), answering(seen))
    with pytest.raises(Unavailable, match=r"one\.test"):
        async with client.stream("GET", "/x"):
            raise httpx2.ReadError("it broke off")
    assert seen == ["one.test "]


async def test_one_wrong_address_in_a_list_is_refused() -> None:
    with pytest.raises(GputError, match="not an http address"):
        Peers().peer("http://one.test,two.test", "the pair")


@pytest.mark.parametrize("port", [0, 65536, 99999])
async def test_a_port_that_is_none_is_refused(port: int) -> None:
    with pytest.raises(GputError, match="has a port that is none"):
        Peers().peer(f"http://one.test:{port}", "the peer")


async def test_who_says_nothing_is_passed_over_where_repeating_is_safe() -> None:
    seen: list[str] = []
    assert await two(failing(9, httpx2.ReadTimeout, []), answering(seen)).get_json("/x") == {"ok": True}
    with pytest.raises(Unavailable) as caught:
        await two(failing(9, httpx2.ReadTimeout, []), answering(seen)).post_json("/x", {"a": 1})
    assert (caught.value.code, len(seen)) == ("peer-timeout", 1)


def a_proxy(status: int, seen: list[str]) -> Handler:
    def handle(request: httpx2.Request) -> httpx2.Response:
        seen.append(f"proxy {status}")
        return httpx2.Response(status, text="<html>Bad Gateway</html>", headers={"content-type": "text/html"})

    return handle


@pytest.mark.parametrize("status", [502, 503, 504])
async def test_a_proxy_without_a_service_behind_it_is_passed_over_where_repeating_is_safe(status: int) -> None:
    seen: list[str] = []
    assert await two(a_proxy(status, seen), answering(seen)).get_json("/x") == {"ok": True}
    client = two(a_proxy(status, seen), answering(seen))
    with pytest.raises(Unavailable, match=str(status)):
        await client.post_json("/x", {"a": 1})  # it may have been done
    assert await client.post_json("/x", {"a": 2}) == {"ok": True}, "but the next call goes elsewhere"
    assert seen == [f"proxy {status}", "two.test ", f"proxy {status}", 'two.test {"a":2}']


async def test_a_services_own_refusal_is_not_asked_for_elsewhere() -> None:
    def full(request: httpx2.Request) -> httpx2.Response:
        document = {"code": "disk-full", "title": "Unavailable"}
        return httpx2.Response(503, json=document, headers={"content-type": "application/problem+json"})

    seen: list[str] = []
    with pytest.raises(Unavailable) as caught:
        await two(full, answering(seen)).get_json("/x")
    assert (caught.value.code, seen) == ("disk-full", [])
