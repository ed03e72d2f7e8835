"""Where reference integrity manifests come from: a folder, offline; a fetcher only where one was switched on. Knows no report.

    trust/rim/NV_GPU_DRIVER_GH100_550.90.07.xml     named as NVIDIA's service names them (reference h100.md 3.2); .swidtag as well

A fetched manifest is verified under the pinned RIM roots before it is kept. One that has expired stays until somebody removes it: an
offline verifier must not change its mind because a server was there for a moment.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from shared.attestation.gpu_rim import RIM_NAME, Rim, RimKind, check_signature, parse_rim
from shared.attestation.gpu_trust import GpuRoots
from shared.attestation.p384_chain import anchored, check_links
from shared.attestation.rim_xml import MAX_RIM_BYTES, malformed
from shared.crypto.private_file import replace_public
from shared.errors import VerificationFailed

ENDINGS = (".xml", ".swidtag")


class RimFetcher(Protocol):
    """Asks a RIM service. Nothing here has one unless an operator switched it on by name."""

    def __call__(self, name: str, /) -> bytes:
        """The manifest of this name. Raises: GputError, for instance NotFound or Unavailable."""
        ...


class RimSource(Protocol):
    """Finds manifests for the verifier."""

    def find(self, kind: RimKind, name: str, *, ask: bool = True) -> bytes | None:
        """The manifest of this name, or None. `ask`: whether somebody elsewhere may be asked for it.

        Raises: VerificationFailed; GputError of a fetcher."""
        ...


@dataclass(frozen=True)
class RimFolder:
    """Manifests in a folder. `roots` are pinned RIM roots: what a fetched one must stand on before it is kept."""

    folder: Path
    roots: GpuRoots
    fetcher: RimFetcher | None = None

    def find(self, kind: RimKind, name: str, *, ask: bool = True) -> bytes | None:
        """From the folder, read anew each time so that a renewed file counts at once; else from the fetcher, if there is one and it may
        be asked. With one, a file that is none (what a full disk or a power cut left) is fetched anew instead of refused for ever.

        Raises:
            VerificationFailed: `gpu-rim-name`, `gpu-rim-malformed`, `gpu-rim-…` of a fetched one that does not verify.
        """
        if not RIM_NAME.fullmatch(name):
            raise VerificationFailed("the manifest's name is no file name", code="gpu-rim-name", got=name[:120])
        fetcher = self.fetcher if ask else None
        for ending in ENDINGS:
            data = _read(self.folder / f"{name}{ending}")
            if data is not None and (fetcher is None or _is_manifest(kind, data)):
                return data
        return None if fetcher is None else self._fetched(fetcher, kind, name)

    def _fetched(self, fetcher: RimFetcher, kind: RimKind, name: str) -> bytes:
        data = fetcher(name)
        rim = parse_rim(kind, data)
        chain, _ = anchored(rim.chain, self.roots.certificates, root_may_be_absent=True)
        check_links(chain)
        check_signature(kind, rim)
        _check_name(kind, rim, name)
        self._keep(name, data)
        return data

    def _keep(self, name: str, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a trust folder may be read-only; the manifest was verified all the same
            replace_public(self.folder / f"{name}{ENDINGS[0]}", data)


def _is_manifest(kind: RimKind, data: bytes) -> bool:
    """Whether it has a manifest's form; whose it is, the verifier asks."""
    try:
        parse_rim(kind, data)
    except VerificationFailed:
        return False
    return True


def _read(path: Path) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(MAX_RIM_BYTES + 1)  # one too many is the parser's to refuse
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise VerificationFailed(
            f"the manifest {path.name} cannot be read: {error.strerror}", code="gpu-rim-unreadable",
            remedy="make the trust folder's files readable for this service",
        ) from None  # fmt: skip


def _check_name(kind: RimKind, rim: Rim, name: str) -> None:
    version = rim.version if kind == "driver" else rim.version.replace(".", "").upper()
    if not name.endswith(f"_{version}"):
        raise malformed(f"{name} was asked for and version {rim.version[:60]} was answered")
