"""Our HTTP client's way to its peers: what is asked arrives, what is answered is read, and connections are used again."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from shared.service import transport
from shared.service.transport import HttpTransport
from tests.service.http_peer import OK, client, heard, peer, saying


async def test_one_connection_serves_many_requests() -> None:
    asked: list[bytes] = []
    async with peer(saying(OK, asked=asked)) as there, client() as mine:
        for body in (b"", b"x" * 500, b"y" * 300_000):
            answer = await mine.post(f"{there.url}/v1/a?b=c%20d", content=body, headers={"x-name": "value"})
            assert (answer.status_code, answer.content, answer.http_version) == (200, b"ok", "HTTP/1.1")
    assert there.connections == 1
    assert [request.partition(b"\r\n\r\n")[2] for request in asked] == [b"", b"x" * 500, b"y" * 300_000]
    assert all(request.startswith(b"POST /v1/a?b=c%20d HTTP/1.1\r\n") for request in asked)
    assert all(b"\r\nx-name: value\r\n" in request.lower() for request in asked)


WHOLE = {
    "chunked": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel", b"lo\r\n6;x=y\r\n world\r\n0\r\n\r\n"),
    "cut in its head": (b"HTTP/1.1 2", b"00 OK\r\ncontent-len", b"gth: 11\r\n\r\nhello", b" world"),
    "behind an interim one": (b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\nhello world"),
    "with trailers": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\nx-more: y\r\n\r\n",),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
async def test_whole_answers(name: str) -> None:
    async with peer(saying(*WHOLE[name])) as there, client() as mine:
        for _ in range(2):
            answer = await mine.get(there.url)
            assert (answer.status_code, answer.content, answer.headers.get("x-more")) == (200, b"hello world", None)
    assert there.connections == 1


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 5\r\n\r\n"]
)
async def test_an_answer_that_ends_its_connection(head: bytes) -> None:
    async with peer(saying(head, b"hel", b"lo", close=True)) as there, client() as mine:
        assert [(await mine.get(there.url)).content for _ in range(2)] == [b"hello"] * 2
    assert there.connections == 2


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_answers_without_a_body(status: bytes) -> None:
    async with peer(saying(b"HTTP/1.1 " + status + b"\r\n\r\n")) as there, client() as mine:
        assert [(await mine.get(there.url)).content for _ in range(2)] == [b""] * 2
        assert there.connections == 1


async def test_head_has_no_body_whatever_its_length_says() -> None:
    async with peer(saying(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n")) as there, client() as mine:
        answer = await mine.head(there.url)
    assert (answer.content, answer.headers["content-length"]) == (b"", "99")


async def test_a_stream_is_sent_in_chunks_and_a_known_one_as_it_is() -> None:
    asked: list[bytes] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            chunked = b"transfer-encoding: chunked" in head.lower()
            asked.append(await (reader.readuntil(b"0\r\n\r\n") if chunked else reader.readexactly(30_003)))
            writer.write(OK)

    async def two() -> AsyncIterator[bytes]:
        yield b"abc"
        yield memoryview(b"d" * 30_000)  # type: ignore[misc]  # as a sealed record is sent from its buffer

    async with peer(handle) as there, client() as mine:
        await mine.post(there.url, content=two())
        await mine.post(there.url, content=two(), headers={"content-length": "30003"})
    assert asked == [b"3\r\nabc\r\n7530\r\n" + b"d" * 30_000 + b"\r\n0\r\n\r\n", b"abc" + b"d" * 30_000]


async def test_connections_that_waited_long_or_were_closed_are_not_used_again() -> None:
    async with peer(saying(OK)) as there, client(idle_s=0.0) as mine:
        for _ in range(3):
            await mine.get(there.url)
            await asyncio.sleep(0.01)
        assert there.connections == 3
    async with peer(saying(OK, close=True)) as there, client() as mine:
        for _ in range(3):
            assert (await mine.get(there.url)).content == b"ok"
            await asyncio.sleep(0.05)  # its end has come here
        assert there.connections == 3


async def test_nobody_there_and_nothing_of_ours() -> None:
    async with peer(saying(OK)) as there:
        gone = there.url
    async with client() as mine:
        with pytest.raises(httpx2.ConnectError):
            await mine.get(gone)
        with pytest.raises(httpx2.UnsupportedProtocol):
            await mine.get("ftp://127.0.0.1/")
        with pytest.raises(httpx2.LocalProtocolError):
            await mine.get(gone, headers={"x-evil": "a\r\nx-injected: b"})


async def test_only_who_is_vouched_for_hears_a_request(tmp_path: Path) -> None:
    asked: list[bytes] = []
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(certificate(tmp_path))
    async with peer(saying(OK, asked=asked), theirs) as there:
        async with client() as mine:
            with pytest.raises(httpx2.ConnectError, match="self-signed"):
                await mine.get(there.url)
        assert not asked
        async with client(tls=ssl.create_default_context(cafile=tmp_path / "peer.pem")) as mine:
            assert [(await mine.get(there.url)).content for _ in range(2)] == [b"ok"] * 2
            with pytest.raises(httpx2.ConnectError, match="mismatch"):
                await mine.get(there.url.replace("127.0.0.1", "localhost"))


def certificate(folder: Path) -> Path:
    """Of 127.0.0.1, by itself, with its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "peer")])
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "peer.pem").write_bytes(private + made.public_bytes(Encoding.PEM))
    return folder / "peer.pem"


async def test_closed_while_an_answer_is_read_it_keeps_nothing() -> None:
    transport = HttpTransport()
    async with peer(saying(OK)) as there:
        answer = await transport.handle_async_request(httpx2.Request("GET", there.url, headers={"host": "x"}))
        await transport.aclose()
        assert await answer.aread() == b"ok"
        again = await transport.handle_async_request(httpx2.Request("GET", there.url, headers={"host": "x"}))
        assert await again.aread() == b"ok"
        assert there.connections == 2


async def test_no_more_requests_are_under_way_at_one_peer_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that answers nothing took every file descriptor of the process, those of the others with them."""
    monkeypatch.setattr(transport, "MAX_IN_USE", 3)
    may = asyncio.Event()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await heard(reader)
            await may.wait()
            writer.write(OK)
            await writer.drain()

    async with peer(handle) as silent, peer(saying(OK)) as other, client() as mine:
        calls = [asyncio.create_task(mine.get(silent.url)) for _ in range(50)]
        while silent.connections < 3:  # noqa: ASYNC110  # no event is given for it
            await asyncio.sleep(0.005)
        assert (await mine.get(other.url)).content == b"ok"
        with pytest.raises(httpx2.PoolTimeout):
            await mine.get(silent.url, timeout=httpx2.Timeout(20.0, pool=0.05))
        calls.pop().cancel()
        may.set()
        assert [answer.content for answer in await asyncio.gather(*calls)] == [b"ok"] * 49
    assert silent.connections == 3


@pytest.mark.parametrize("streamed", [False, True])
async def test_what_fails_or_is_not_read_to_its_end_takes_nobodys_place(
    monkeypatch: pytest.MonkeyPatch, streamed: bool
) -> None:
    monkeypatch.setattr(transport, "MAX_IN_USE", 1)

    async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await heard(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nsome" if streamed else b"")
        await writer.drain()

    async with peer(broken) as there, client(patience_s=5.0) as mine:
        for _ in range(3):
            if streamed:
                async with mine.stream("GET", there.url) as answer:
                    assert answer.status_code == 200
            else:
                with pytest.raises(httpx2.RemoteProtocolError):
                    await mine.get(there.url)
    async with client(patience_s=5.0) as mine:
        for _ in range(3):
            with pytest.raises(httpx2.ConnectError):
                await mine.get(there.url)
