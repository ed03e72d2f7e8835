"""The open table of evidence backends, and how a service opens the one that its settings name. Knows no backend.

A backend says whether it derives sealing keys itself. Where it does not, the service needs `sealing_key_file`: keys that nobody
else can make again would be lost at the next start, and with them the journal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from shared.crypto.secret import Secret
from shared.errors import ConfigurationError
from shared.service.key_file import read_key_file
from shared.wire.visit import Evidence

REPORT_DATA_BYTES = 64
MIN_TOKEN = 32
"""Characters: nobody must be able to guess one."""


class EvidenceProvider(Protocol):
    """This CVM's way to its quoting enclave."""

    async def quote(self, report_data: bytes) -> Evidence:
        """A quote over 64 bytes. Raises: BadRequest, NotAuthenticated, Unavailable."""
        ...

    async def registers(self) -> dict[int, bytes]:
        """The runtime registers that this CVM's code may extend, and their values now; none on machines that have none."""
        ...

    async def relaunch(self) -> bool:
        """Begin this CVM anew, registers and all, where a process can do that to itself; whether it can."""
        ...

    async def extend(self, register: int, digest: bytes, before: bytes) -> None:
        """Extend a register from the value `before`; the same again has no further effect. All 48 bytes.

        Raises:
            NotAuthenticated, Unavailable. Conflict: the register has another value.
        """
        ...

    async def derived_key(self, label: str) -> Secret:
        """32 bytes bound to (machine, measured code, label).

        Raises: NotAuthenticated, Unavailable, VerificationFailed. ConfigurationError: the backend has none.
        """
        ...

    async def aclose(self) -> None:
        """Release connections."""
        ...


@dataclass(frozen=True)
class GuestSecrets:
    """What a backend may need besides its URI: the token of an emulated CVM, or a sealing key released into this guest."""

    token: str = ""
    sealing_key: Secret | None = None


Factory = Callable[[str, GuestSecrets], EvidenceProvider]
"""(rest of the URI after the scheme, secrets) -> provider, or ConfigurationError."""


@dataclass(frozen=True)
class _Backend:
    factory: Factory
    derives_keys: bool


_BACKENDS: dict[str, _Backend] = {}


def register(scheme: str, factory: Factory, *, derives_keys: bool) -> None:
    """Add a backend. Raises: ConfigurationError when the scheme is taken: a backend cannot be replaced unseen."""
    if scheme in _BACKENDS:
        raise ConfigurationError(f"evidence backend {scheme} is registered already", code="evidence-backend")
    _BACKENDS[scheme] = _Backend(factory, derives_keys)


def provider(uri: str, token: str = "", sealing_key: Secret | None = None) -> EvidenceProvider:
    """The provider that `uri` names. Connects to nothing; a hardware backend looks whether its hardware is there.

    Raises:
        ConfigurationError: `evidence-backend`, an unknown scheme, a malformed URI, or a backend that is not there.
    """
    backend, rest = _named(uri)
    return backend.factory(rest, GuestSecrets(token, sealing_key))


def open_provider(uri: str, *, token_file: Path | None, sealing_key_file: Path | None) -> EvidenceProvider:
    """The provider for a service, which needs sealing keys too: from the backend or from `sealing_key_file`, never both.

    Raises:
        ConfigurationError: as `provider`; `evidence-token`, `sealing-key`: a file is missing, unreadable or superfluous.
    """
    backend, rest = _named(uri)
    scheme = uri.partition(":")[0]
    if sealing_key_file is None and not backend.derives_keys:
        raise ConfigurationError(
            f"the evidence backend {scheme}: derives no sealing keys, and no other source of them is set",
            code="sealing-key",
            remedy="set sealing_key_file to a 32-byte secret that a key broker or vTPM releases to this measured guest",
        )
    if sealing_key_file is not None and backend.derives_keys:
        raise ConfigurationError(
            f"sealing_key_file is set, but the evidence backend {scheme}: derives sealing keys itself",
            code="sealing-key",
            remedy="unset sealing_key_file",
        )
    sealing_key = None
    if sealing_key_file is not None:
        sealing_key = read_key_file(
            sealing_key_file, "sealing_key_file", code="sealing-key",
            remedy="let the key broker or vTPM write 32 random bytes there, mode 0600, on a file system in memory",
        )  # fmt: skip
    token = "" if token_file is None else _read_token(token_file)
    return backend.factory(rest, GuestSecrets(token, sealing_key))


def _named(uri: str) -> tuple[_Backend, str]:
    scheme, separator, rest = uri.partition(":")
    backend = _BACKENDS.get(scheme) if separator else None
    if backend is None:
        raise ConfigurationError(
            f"no evidence backend is called {scheme!r}",
            code="evidence-backend",
            expected=", ".join(f"{name}:" for name in sorted(_BACKENDS)),
            remedy="name a backend that this installation has; there is no default",
        )
    return backend, rest


def _read_token(path: Path) -> str:
    remedy = "Point evidence_token_file at the token that the installation made for this CVM."
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigurationError(
            f"evidence_token_file {path} cannot be read: {why}", code="evidence-token", remedy=remedy
        ) from None
    if len(token) < MIN_TOKEN:
        raise ConfigurationError(
            f"evidence_token_file {path} is {'empty' if not token else 'too short'}",
            code="evidence-token",
            remedy=remedy,
        )
    return token
