"""What the emulated machine says of itself, in the numbers that a real one has. Knows no key, no certificate and no guest.

Every name says EMULATED; the FMSPC is one that Intel does not use. The levels let a test be up to date, out of date or below all.
"""

from __future__ import annotations

from dataclasses import dataclass

from shared.canonical import sha256, sha384

FMSPC = bytes.fromhex("ee6d75000000")
PCE_ID = bytes.fromhex("ee00")
COMPONENTS = (2,) * 16
PCE_SVN = 13
CPU_SVN = bytes(COMPONENTS)
TEE_TCB_SVN = bytes([2, 1, 2]) + bytes(13)  # module SVN 2 of major version 1, and the TDX side's third component
MR_SEAM = sha384(b"EMULATED TDX module")
MRSIGNER_SEAM = bytes(48)  # as of Intel's own modules
TD_ATTRIBUTES = (1 << 28).to_bytes(8, "little")  # SEPT_VE_DISABLE, never DEBUG
XFAM = (0xE7).to_bytes(8, "little")  # x87, SSE, AVX, AVX-512
QE_MR_ENCLAVE = sha256(b"EMULATED quoting enclave")
QE_MR_SIGNER = sha256(b"EMULATED quoting enclave signer")
QE_PRODUCT, QE_SVN = 2, 4
QE_AUTH = bytes(range(32))  # as on real machines


@dataclass(frozen=True)
class Level:
    """One TCB level: least SVNs (a platform's 16 components, PCE, TDX components; or one number), date, status, advisories."""

    date: str
    status: str
    svn: int = 0
    components: tuple[int, ...] = ()
    pce: int = 0
    tdx: tuple[int, ...] = ()
    advisories: tuple[str, ...] = ()


NEW, OLD = "2026-01-01T00:00:00Z", "2024-01-01T00:00:00Z"
PLATFORM_LEVELS = (
    Level(NEW, "UpToDate", components=COMPONENTS, pce=PCE_SVN, tdx=(2, 0, 2, *(0,) * 13)),
    Level(OLD, "OutOfDate", components=(1,) * 16, pce=11, tdx=(1, 0, 1, *(0,) * 13), advisories=("EMULATED-SA-00001",)),
)
MODULE_LEVELS = (
    Level(NEW, "UpToDate", svn=2),
    Level(OLD, "OutOfDate", svn=1, advisories=("EMULATED-SA-00002",)),
)
QE_LEVELS = (Level(NEW, "UpToDate", svn=QE_SVN), Level(OLD, "OutOfDate", svn=QE_SVN - 1))
EVALUATION = 1
