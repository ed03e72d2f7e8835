"""Hops that `gput doctor` tests besides the services' own word: key, trust folder, collateral's age, room, TLS, which service it is.
Knows no service but by its name.

A check answers with what it found, or raises: `GputError` for a hop that fails, `Doubt` for one that works and will be trouble.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import ssl
import stat
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from shared.errors import GputError, Unavailable

SOON_S = 14 * 86_400.0
LEAST_ROOM = 1 << 30
LOOPBACK = ("127.0.0.1", "localhost", "::1")
TLS_S = 5.0
UNSEEN_S = 120.0


SERVICES = {
    "orchestrator": "orchestrator", "holder": "gput data holder", "agent": "GPU Travelling agent", "platform": "GPU Travelling platform",
}  # fmt: skip
"""By the first word of a hop, how the name begins that its service gives itself at /version."""
ROOT_REMEDY = "Renew it, or name the root that signed it in SSL_CERT_FILE."


class Doubt(GputError):
    """It works, and somebody should look at it."""


def key_file(path: Path) -> str:
    """The key can be read, and by nobody else. Raises: ConfigurationError, Doubt."""
    from shared.crypto.signing import PartyKey

    found = PartyKey.load(path).fingerprint
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise Doubt(f"{path} may be read by others (mode {mode:o})", code="key-open", remedy=f"chmod 600 {path}")
    return f"fingerprint {found[:16]}…"


def room(folder: Path) -> str:
    """There is room for models and receipts where the command runs. Raises: Doubt."""
    free = shutil.disk_usage(folder).free
    if free < LEAST_ROOM:
        raise Doubt(f"{free / 2**20:.0f} MiB free", code="little-room", remedy="Make room, or work in another folder.")
    return f"{free / 2**30:.1f} GiB free"


def collateral(folder: Path, at: float) -> str:
    """Every bundle of the trust folder is signed by its maker and still counts. Raises: ConfigurationError, Unavailable, Doubt."""
    from shared.attestation.collateral_folder import read_folder
    from shared.attestation.collateral_store import CollateralStore
    from shared.attestation.cpu_trust import CpuRoots

    roots = CpuRoots.load(folder / "cpu-roots.pem").certificates
    store = CollateralStore.load(folder / "collateral", roots)
    ends = {
        path.name: min(window.end for window in store.learn(source).windows)
        for path, source in read_folder(folder / "collateral")
    }
    if not ends:
        return "none at hand: what a machine brings itself counts"
    name, end = min(ends.items(), key=lambda item: item[1])
    left = end - at
    remedy = "Fetch it anew into trust/collateral/ (collateral_url), or manufacture again."
    if left <= 0:
        raise Unavailable(f"{name} expired {-left / 86_400:.1f} days ago", code="collateral-expired", remedy=remedy)
    if left < SOON_S:
        raise Doubt(f"{name} expires in {left / 86_400:.1f} days", code="collateral-soon", remedy=remedy)
    return f"good for {left / 86_400:.0f} days"


async def tls(address: str) -> str:
    """The certificate of an https address is valid for its name, and for a while. Raises: Unavailable, Doubt."""
    parts = urlsplit(address)
    if parts.scheme != "https":
        if parts.hostname in LOOPBACK:
            return "none, on loopback"
        raise Doubt(
            "requests are signed, but everybody on the way can read them", code="no-tls", remedy="Serve it by https."
        )
    try:
        async with asyncio.timeout(TLS_S):
            _, writer = await asyncio.open_connection(
                parts.hostname, parts.port or 443, ssl=ssl.create_default_context(), server_hostname=parts.hostname
            )
    except ssl.SSLCertVerificationError as error:
        raise Unavailable(
            f"{parts.hostname}: {error.verify_message}", code="tls-certificate", expected=f"a certificate for {parts.hostname}",
            got="another", remedy=ROOT_REMEDY,
        ) from None  # fmt: skip
    except (OSError, TimeoutError) as error:
        raise Unavailable(
            f"{parts.hostname}: {type(error).__name__}", code="tls", remedy="Check port and proxy."
        ) from None
    certificate = writer.get_extra_info("peercert") or {}
    writer.close()
    left = ssl.cert_time_to_seconds(str(certificate["notAfter"])) - time.time()
    if left < SOON_S:
        raise Doubt(f"its certificate ends in {left / 86_400:.1f} days", code="tls-soon", remedy="Renew it.")
    return f"certificate good for {left / 86_400:.0f} days"


def named(hop: str, address: str, said: object) -> None:
    """That it is the service meant which answers. `said`: its answer at /version. Raises: Unavailable."""
    service, kind = said.get("service") if isinstance(said, dict) else None, hop.split()[0]
    if not isinstance(service, str):
        raise Unavailable(f"{address} does not say which service it is", code="wrong-service",
                          remedy="Another program may have that address.")  # fmt: skip
    if not service.startswith(SERVICES[kind]):
        raise Unavailable(f"{service[:60]!r} answers at {address}, not {SERVICES[kind]!r}", code="wrong-service",
                          remedy="Give each service's own address.")  # fmt: skip


def unreachable(error: httpx2.RequestError) -> tuple[str, str]:
    """Why no answer came, or none that can be read, and what to do."""
    if not isinstance(error, httpx2.TransportError):
        return (
            f"what answers at that address cannot be read ({type(error).__name__})",
            "Another program may have that address, or a proxy before it may be set wrong.",
        )
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, socket.gaierror):
            return "no host of that name is known here", "Check the host's name, and this machine's DNS."
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not accepted: {cause.verify_message}", ROOT_REMEDY
        if isinstance(cause, ssl.SSLError):
            return (
                "what answers at that address does not speak TLS",
                "Check port and proxy, or write http:// in place of https://.",
            )
        if isinstance(cause, ConnectionRefusedError):
            return "nothing answers at that address: it is refused", "Check that it runs, and the port."
        cause = cause.__cause__ or cause.__context__
    return (
        f"nothing answers at that address ({type(error).__name__})",
        "Check that it runs, the address, and what stands between.",
    )


def heard(name: str, last_seen: float | None, at: float) -> str:
    """A holder asks its orchestrator for news all the time. Raises: Doubt."""
    if last_seen is None:
        raise Doubt(f"{name} has not been heard of since the orchestrator started", code="holder-unheard",
                    remedy=f"Start {name}'s service; it needs outbound connections only.")  # fmt: skip
    if at - last_seen > UNSEEN_S:
        raise Doubt(f"{name} was last heard of {at - last_seen:.0f} s ago", code="holder-unheard",
                    remedy=f"Look at {name}'s log: does it reach the orchestrator?")  # fmt: skip
    return f"heard of {max(0.0, at - last_seen):.0f} s ago"


def working_folder() -> Path:
    """Where the command runs."""
    return Path(os.getcwd())
