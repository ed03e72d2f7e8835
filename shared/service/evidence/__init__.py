"""Where a CVM gets its own evidence and sealing keys: backends by URI, one file each. Knows no verifier and no session.

    emulated:http://HOST:PORT/cvms/NAME     the platform's emulated quoting enclave
    configfs-tsm:[PATH][#ENTRY]             the kernel of a real confidential VM: TDX or SEV-SNP

An unknown scheme or a missing backend fails; nothing falls back to another one (law L10).
"""

from __future__ import annotations

from shared.service.evidence.configfs_tsm import ConfigfsTsmProvider
from shared.service.evidence.emulated import EmulatedProvider
from shared.service.evidence.registry import (
    MIN_TOKEN,
    EvidenceProvider,
    GuestSecrets,
    open_provider,
    provider,
    register,
)

__all__ = [
    "MIN_TOKEN",
    "ConfigfsTsmProvider",
    "EmulatedProvider",
    "EvidenceProvider",
    "GuestSecrets",
    "open_provider",
    "provider",
    "register",
]
