"""Every process of a comparison ends, and every byte of it is counted, in real processes and a real network namespace."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers import traffic
from tests.peers.brood import Peak, descendants, own_memory_mb

ROOT = Path(__file__).parents[2]


def python(code: str, *before: str) -> str:
    done = subprocess.run(
        [*before, sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_descendants_and_what_they_hold() -> None:
    assert sorted(descendants(10, {11: 10, 12: 11, 13: 1, 14: 12, 10: 1})) == [11, 12, 14]
    assert own_memory_mb("VmRSS:\t 900 kB\nRssAnon:\t  1024 kB\nRssFile:\t 64 kB\nRssShmem:\t 512 kB\n") == 1.5
    assert own_memory_mb("Name:\tkthreadd\n") == 0
    peak = Peak()
    for held in ([3.0, 4.0], [6.0], []):
        peak.add(held)
    assert (peak.all_mb, peak.one_mb) == (7.0, 6.0)


def test_everything_that_was_started_ends_also_what_left_its_parent() -> None:
    code = """
import os, tempfile
from pathlib import Path
from tests.peers.brood import Brood, adopt_orphans, descendants, parents, until
adopt_orphans()
with Brood(Path(tempfile.mkdtemp()), {"MARK": "given"}) as brood:
    brood.start("one", ["sh", "-c", "setsid sleep 1000 & setsid sh -c 'sleep 1000 & wait' & echo $MARK"]).wait()
    assert until(lambda: len(descendants(os.getpid(), parents())) >= 3, 60)
    assert until(lambda: brood.peak.all_mb > 0, 60)
    print(brood.tool(["echo", "hello"]).strip(), (brood.folder / "one.log").read_text().strip())
    try:
        brood.tool(["false"])
    except RuntimeError as error:
        print("exit code 1" in str(error))
    raised = None
print(descendants(os.getpid(), parents()))
"""
    assert python(code).splitlines() == ["hello given", "True", "[]"]


V4 = bytes([127, 0, 0, 1])


def packet(kind: int, protocol: int, source: int, destination: int) -> bytes:
    ports = source.to_bytes(2) + destination.to_bytes(2)
    if kind == traffic.IPV4:
        internet = bytes([0x46, *bytes(8), protocol, *bytes(2), *V4, *V4[::-1], *bytes(4)])  # with one word of options
    else:
        internet = bytes([0x60, *bytes(5), protocol, 64, *bytes(15), 1, *bytes(15), 2])
    return bytes(12) + kind.to_bytes(2) + internet + ports + bytes(40)


@pytest.mark.parametrize(("kind", "source", "destination"), [
    (traffic.IPV4, "127.0.0.1", "1.0.0.127"), (traffic.IPV6, "::1", "::2"),
])  # fmt: skip
def test_ends_of_a_packet(kind: int, source: str, destination: str) -> None:
    assert traffic.ends(packet(kind, traffic.TCP, 50000, 8002)) == ((source, 50000), (destination, 8002))
    assert traffic.ends(packet(kind, 17, 53, 53)) is None
    assert traffic.ends(packet(0x0806, traffic.TCP, 1, 2)) is None


def test_bytes_are_counted_by_the_servers_end() -> None:
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([unshare, "-rn", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespace for an unprivileged user here")
    # What a busy machine's TCP sent twice crossed the link twice: the kernel says how much (tcpi_bytes_retrans of TCP_INFO).
    code = """
import socket, struct
from tests.peers import traffic
traffic.up()
twice = []
servers = [socket.create_server((host, 0)) for host in ("127.0.0.1", "127.0.0.2")]
meter = traffic.Meter()
for server, size in zip(servers, (300_000, 50_000)):
    with socket.create_connection(server.getsockname()) as client:
        taken, _ = server.accept()
        client.sendall(bytes(size))
        client.shutdown(socket.SHUT_WR)
        while taken.recv(1 << 20):
            pass
        twice += struct.unpack_from("=Q", client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 216), 208)
        taken.close()
from tests.peers.brood import until
ends = [server.getsockname() for server in servers]
assert until(lambda: meter.at(*ends) >= 350_000, 60)
meter.close()
print(meter.missed, *(meter.at(end) for end in ends), meter.all_bytes, *twice)
"""
    missed, large, small, everything, *twice = map(int, python(code, unshare, "-rn").split())
    assert missed == 0
    assert 300_000 < large - twice[0] < 330_000
    assert 50_000 < small - twice[1] < 60_000
    assert large + small <= everything < large + small + 5_000
