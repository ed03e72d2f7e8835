"""Bodies of the routes that hand out proofs, with examples. Knows no behaviour."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from data_holder.api.models import Body, Digest

Base64 = Annotated[str, Field(examples=["aGVsbG8="])]
RawKey = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", examples=["7d" * 32], description="Ed25519, raw, hex")]
StatementKey = Annotated[
    str,
    Field(
        pattern=r"^(?:[0-9a-f]{64}|04[0-9a-f]{192})$",
        examples=["5b" * 32],
        description="Ed25519, raw, hex; of earlier releases' devices P-384, uncompressed point, hex",
    ),
]


class SignedView(Body):
    """A document's exact bytes and the Ed25519 signature (64 bytes) over `label 00 ‖ document`."""

    document: Base64
    signature: Base64


class AgreementView(Body):
    """The manifest's exact bytes and their SHA-256; this holder's newest decision, signed under the label `gput/approval` by `public_key`
    (null before the first); and the root of the dataset that it approved (null before an approval)."""

    holder: str = Field(examples=["hospital-a"])
    public_key: RawKey
    manifest: Base64
    digest: Digest
    decision: SignedView | None
    dataset_root: Digest | None


class KeyView(Body):
    """What one attested channel vouches for. A receipt names its channel by the digests of both runtime data. `holder_runtime_data` is null
    for a life that was introduced and opened no channel here: it may have signed, but no visit went through it. `statement_key` is null
    for a device that certified none: nothing that it states can then be checked."""

    orchestrator_runtime_data: Digest
    holder_runtime_data: Digest | None
    gpu_evidence: Digest
    device: str
    signing_key: RawKey
    statement_key: StatementKey | None


class HeadView(Body):
    """A log head: so many leaves under this root."""

    size: int
    root: Digest


class LogView(HeadView):
    """The newest head, its time (seconds since 1970), the key that signed it (label `gput/tree-head`) and the proof (RFC 9162 2.1.4) that
    it extends `remembered`, the newest head that this holder accepted before (null before the first)."""

    time: int
    key: RawKey
    signature: Base64
    remembered: HeadView | None
    consistency: list[Digest]


class ProvenReceipt(Body):
    """A receipt's bytes (COSE_Sign1) and its way to the root of the tree that was asked about; null where none was."""

    index: int
    receipt: Base64
    path: list[Digest] | None
