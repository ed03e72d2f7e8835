"""Files of an installation: where they lie, and how what manufacturing made is read. Knows no key format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shared.errors import ConfigurationError


@dataclass(frozen=True)
class Installation:
    """Paths within one manufactured installation folder."""

    root: Path

    @property
    def trust(self) -> Path:
        """Public: roots and reference values, for every verifier."""
        return self.root / "trust"

    @property
    def cpu_roots(self) -> Path:
        return self.trust / "cpu-roots.pem"

    @property
    def reference(self) -> Path:
        return self.trust / "reference.json"

    @property
    def collateral_cache(self) -> Path:
        """Signed statements about machines, for every verifier; renewed by manufacturing."""
        return self.trust / "collateral"

    @property
    def collateral(self) -> Path:
        """The emulated maker's own."""
        return self.collateral_cache / "emulated.json"

    @property
    def maker(self) -> Path:
        """Keys of the emulated CPU maker; needed to manufacture only, never to serve."""
        return self.root / "maker" / "cpu"

    @property
    def platform(self) -> Path:
        """Private to the platform's process."""
        return self.root / "platform"

    @property
    def pck_key(self) -> Path:
        return self.platform / "cpu" / "pck.pem"

    @property
    def pck_chain(self) -> Path:
        return self.platform / "cpu" / "chain.pem"

    @property
    def launches(self) -> Path:
        """What the emulated TDX module keeps of each running CVM."""
        return self.platform / "cvms"

    @property
    def secret(self) -> Path:
        return self.platform / "installation.secret"

    @property
    def mux_key(self) -> Path:
        return self.platform / "mux.pem"

    @property
    def mux_public(self) -> Path:
        return self.platform / "mux.pub"

    @property
    def cvms(self) -> Path:
        """CVM name -> names of the measured packages."""
        return self.platform / "cvms.json"

    @property
    def devices(self) -> Path:
        return self.root / "devices"

    def token(self, cvm: str) -> Path:
        """The secret that stands for one CVM's private path to its quoting enclave."""
        return self.root / "cvms" / f"{cvm}.token"

    def gpus(self) -> list[str]:
        """Names of the manufactured devices."""
        return sorted(path.name for path in self.devices.glob("*") if path.is_dir())


def read_made(path: Path, what: str) -> bytes:
    """A public file that manufacturing made. Raises: ConfigurationError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{what} {path} cannot be read: {error.strerror}",
            code="installation-file",
            remedy="run `python -m gpu_agent.platform manufacture` for this folder first",
        ) from None


def read_private(path: Path, what: str) -> bytes:
    """A secret file's content. Raises: ConfigurationError: absent or open to other users."""
    try:
        mode, content = path.stat().st_mode, path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{what} {path} cannot be read: {error.strerror}",
            code="installation-file",
            remedy="run `python -m gpu_agent.platform manufacture` for this folder first",
        ) from None
    if mode & 0o077:
        raise ConfigurationError(
            f"{what} {path} is open to other users", code="installation-file", remedy=f"chmod 600 {path}"
        )
    return content
