"""TCB info and QE identity: what Intel's collateral service says of platforms, modules and quoting enclaves, typed. Knows no signature.

Source: Intel PCS v4 (TCB info version 3, enclave identity version 2). The text is signed by somebody else: unknown members are left alone,
known ones are strict, and a status that is not in the published list makes the whole text unusable.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from shared.attestation.certificates import Window
from shared.canonical import json_value
from shared.claims.shape import first_fault
from shared.errors import BadRequest, VerificationFailed

MAX_TEXT_BYTES = 512 * 1024
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)


def _octets(value: Any) -> bytes:
    if not isinstance(value, str):
        raise ValueError("not text")
    return bytes.fromhex(value)


def _seconds(value: Any) -> float:
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise ValueError("not a time of the form 2025-06-19T09:52:28Z")
    return datetime.fromisoformat(value).timestamp()


def _size(count: int) -> Any:
    return Field(min_length=count, max_length=count)


Bytes2 = Annotated[bytes, BeforeValidator(_octets), _size(2)]
Bytes4 = Annotated[bytes, BeforeValidator(_octets), _size(4)]
Bytes6 = Annotated[bytes, BeforeValidator(_octets), _size(6)]
Bytes8 = Annotated[bytes, BeforeValidator(_octets), _size(8)]
Bytes16 = Annotated[bytes, BeforeValidator(_octets), _size(16)]
Bytes32 = Annotated[bytes, BeforeValidator(_octets), _size(32)]
Bytes48 = Annotated[bytes, BeforeValidator(_octets), _size(48)]
Seconds = Annotated[float, BeforeValidator(_seconds)]
Advisories = Annotated[tuple[Annotated[str, Field(max_length=64)], ...], Field(alias="advisoryIDs", max_length=256)]
PlatformStatus = Literal[
    "UpToDate",
    "SWHardeningNeeded",
    "ConfigurationNeeded",
    "ConfigurationAndSWHardeningNeeded",
    "OutOfDate",
    "OutOfDateConfigurationNeeded",
    "Revoked",
]


class _Signed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel, allow_inf_nan=False)


class Svn(_Signed):
    """One component of a TCB level."""

    svn: int = Field(ge=0, le=255)


class PlatformSvns(_Signed):
    """The least SVNs of a platform level: 16 components, the PCE's, 16 components of the TDX side."""

    sgx: tuple[Svn, ...] = Field(alias="sgxtcbcomponents", min_length=16, max_length=16)
    pce: int = Field(alias="pcesvn", ge=0, le=65535)
    tdx: tuple[Svn, ...] = Field(alias="tdxtcbcomponents", min_length=16, max_length=16)


class EnclaveSvn(_Signed):
    """The least SVN of a module or quoting enclave level."""

    isvsvn: int = Field(ge=0, le=65535)


class PlatformLevel(_Signed):
    """One level of a platform, best first in the list."""

    tcb: PlatformSvns
    tcb_date: Seconds
    tcb_status: PlatformStatus
    advisory_ids: Advisories = ()


class EnclaveLevel(_Signed):
    """One level of a TDX module or of the quoting enclave, best first in the list."""

    tcb: EnclaveSvn
    tcb_date: Seconds
    tcb_status: PlatformStatus
    advisory_ids: Advisories = ()


class TdxModule(_Signed):
    """Which TDX module counts: its signer and its attributes under a mask."""

    mrsigner: Bytes48
    attributes: Bytes8
    attributes_mask: Bytes8


class TdxModuleIdentity(TdxModule):
    """The same for one major version of the module, "TDX_nn", with levels of its own."""

    id: str = Field(pattern=r"^TDX_[0-9A-Fa-f]{2}$")
    tcb_levels: tuple[EnclaveLevel, ...] = Field(min_length=1, max_length=256)


class _Issued(_Signed):
    issue_date: Seconds
    next_update: Seconds
    tcb_evaluation_data_number: int = Field(ge=0, le=0xFFFFFFFF)


class TcbInfo(_Issued):
    """TCB info of one FMSPC for TDX."""

    id: Literal["TDX"]
    version: int = Field(ge=3, le=3)
    fmspc: Bytes6
    pce_id: Bytes2
    tcb_type: Literal[0]
    tdx_module: TdxModule
    tdx_module_identities: tuple[TdxModuleIdentity, ...] = Field(default=(), max_length=256)
    tcb_levels: tuple[PlatformLevel, ...] = Field(min_length=1, max_length=256)

    @property
    def window(self) -> Window:
        """From issue to the next update."""
        return Window("TCB info", self.issue_date, self.next_update)


class QeIdentity(_Issued):
    """Identity of the quoting enclave for TDs."""

    id: Literal["TD_QE"]
    version: int = Field(ge=2, le=2)
    miscselect: Bytes4
    miscselect_mask: Bytes4
    attributes: Bytes16
    attributes_mask: Bytes16
    mrsigner: Bytes32
    isvprodid: int = Field(ge=0, le=65535)
    tcb_levels: tuple[EnclaveLevel, ...] = Field(min_length=1, max_length=256)

    @property
    def window(self) -> Window:
        """From issue to the next update."""
        return Window("QE identity", self.issue_date, self.next_update)


T = TypeVar("T", TcbInfo, QeIdentity)


def parse_signed(kind: type[T], text: str, what: str) -> T:
    """The typed value of a signed text. Raises: VerificationFailed `collateral-malformed`."""
    try:
        return kind.model_validate(json_value(text.encode(), MAX_TEXT_BYTES))
    except ValidationError as error:
        raise VerificationFailed(
            f"the {what} is malformed: {first_fault(error)}", code="collateral-malformed"
        ) from None
    except (BadRequest, UnicodeEncodeError):
        raise VerificationFailed(f"the {what} is not strict JSON", code="collateral-malformed") from None
