"""What parties agree to accept of an AMD SEV-SNP guest and its machine. Typed and fail-closed; knows no report, no certificate and no root.

Source: SEV-SNP firmware ABI (56860): TCB_VERSION, GUEST_POLICY, CHIP_ID; AMD's VCEK and VLEK certificate specifications (57230, 58369).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from shared.claims import Claim

Product = Literal["Milan", "Genoa", "Turin"]
PRODUCTS: Final[tuple[Product, ...]] = ("Milan", "Genoa", "Turin")
ChipId = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]
CspId = Annotated[str, Field(min_length=1, max_length=200)]
PatchLevel = Annotated[int, Field(ge=0, le=255)]


class TcbMinimum(Claim):
    """Least patch levels of one product, each component by itself; `fmc` is compared on Turin only."""

    bootloader: PatchLevel = 0
    tee: PatchLevel = 0
    snp: PatchLevel = 0
    microcode: PatchLevel = 0
    fmc: PatchLevel = 0


class SnpRules(Claim):
    """What counts as a sound SEV-SNP guest, beside what each verifier's own trust folder asks: both must be met. Debuggable guests never
    are. With `machines` named a VLEK counts only where the report names the chip, for it names none itself."""

    products: tuple[Product, ...] = Field(
        default=PRODUCTS, min_length=1, description="generations of processors that count"
    )
    signing_keys: tuple[Literal["VCEK", "VLEK"], ...] = Field(
        default=("VCEK", "VLEK"), min_length=1, description="whose key may sign the report: the chip's, the cloud's"
    )
    csp_ids: tuple[CspId, ...] = Field(default=(), max_length=64, description="clouds whose VLEK counts; empty: any")
    machines: tuple[ChipId, ...] = Field(
        default=(), max_length=1024, description="chip ids that count; empty: any machine"
    )
    minimum_tcb: dict[Product, TcbMinimum] = Field(
        default_factory=dict,
        description="least patch levels by product, of the reported and the launch TCB; a product without an entry does not count "
        "then; empty: any",
    )
    allow_smt: bool = Field(
        default=True, description="accept a guest whose policy lets its machine use hyper-threading"
    )
    allow_migration_agent: bool = Field(
        default=False, description="accept a guest whose memory another guest, a migration agent, may move"
    )
    allow_cxl: bool = Field(default=False, description="accept a guest whose memory may lie behind a CXL link")

    def counted(self) -> tuple[Product, ...]:
        """Products of which a guest can pass: named ones, and with levels where any product has some."""
        return tuple(one for one in self.products if not self.minimum_tcb or one in self.minimum_tcb)


ANY_SNP: Final = SnpRules()
