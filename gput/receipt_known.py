"""What is believed before a leaf is looked at: the log's signed head, whose keys sign, what the parties signed for. Knows no leaf.

It goes to the processes that check leaves as one byte string, so that none of them asks a file (which may have changed) or attestation
(which takes long to import) again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shared.canonical import cbor_bytes, cbor_value, sha256
from shared.claims.manifest import Manifest, parse_manifest
from shared.crypto.cose import Verifier, load_verifier, raw_verifier
from shared.crypto.tree_head import TreeHead
from shared.errors import VerificationFailed


@dataclass(frozen=True)
class Signer:
    """One life's keys, believed: the orchestrator's session signing key (raw Ed25519) and the device's statement key."""

    signing_key: bytes
    statement_key: Verifier
    gpu_evidence: str
    device: str
    backend: str


class Keyring:
    """Believed keys: those of a channel by SHA-256 of the runtime data that introduced them, signing keys by what receipts call them."""

    def __init__(self, signers: Mapping[str, Signer]) -> None:
        self.signers = dict(signers)
        keys = {signer.signing_key for signer in signers.values()}
        self._by_id = {name: key for key in keys for name in (key, sha256(key))}

    def introduced_by(self, runtime: str) -> Signer:
        """The keys of one channel. Raises: VerificationFailed `unknown-key`."""
        if runtime not in self.signers:
            raise VerificationFailed("the receipt names runtime data that no key introduces", code="unknown-key")
        return self.signers[runtime]

    def named_by(self, kid: bytes) -> bytes:
        """The orchestrator's signing key with this key id (the key itself, or its SHA-256). Raises: VerificationFailed `unknown-key`."""
        if kid not in self._by_id:
            raise VerificationFailed("signed by a key that no attested orchestrator has", code="unknown-key")
        return self._by_id[kid]


@dataclass(frozen=True)
class Dataset:
    """What a holder's approval commits to: Merkle root (hex) and number of its records."""

    root: str
    records: int


@dataclass(frozen=True)
class SignedFor:
    """`digest`: the manifest's, hex. `approved`: by holder; `keys`: the holder's raw public key, which the roster names. `approved_at`:
    when each holder first approved by its own word, Unix seconds."""

    session: str
    manifest: Manifest
    digest: str
    approved: dict[str, Dataset] = field(default_factory=dict)
    keys: dict[str, bytes] = field(default_factory=dict)
    approved_at: dict[str, float] = field(default_factory=dict)

    @property
    def quorum(self) -> int:
        """Approvals that the manifest asks for."""
        return self.manifest.quorum or len(self.manifest.roster)

    @property
    def since(self) -> float:
        """When the session began at the earliest, Unix seconds: before a quorum has approved, no channel opens. 0: nobody approved.

        Each time is a holder's own word. So it is the middle one of a quorum's, which neither one that lies can put back by itself nor one
        whose clock is fast can put off; of two it is the earlier one.
        """
        times = sorted(self.approved_at.values())[: self.quorum]
        return times[(len(times) - 1) // 2] if times else 0.0

    def dataset_of(self, holder: str) -> Dataset:
        """What the holder approved with. Raises: VerificationFailed `not-approved`: nothing, so no visit of it may be."""
        if holder not in self.approved:
            raise VerificationFailed(f"{holder} never approved the session", code="not-approved")
        return self.approved[holder]


@dataclass(frozen=True)
class Known:
    """All that a leaf is held against."""

    head: TreeHead
    keys: Keyring
    book: SignedFor

    def to_bytes(self) -> bytes:
        """For `from_bytes` in another process of this verification; nothing in it is secret."""
        head, book = self.head, self.book
        signers = {
            runtime: [s.signing_key, raw_verifier(s.statement_key), s.gpu_evidence, s.device, s.backend]
            for runtime, s in self.keys.signers.items()
        }
        approved = {holder: [said.root, said.records] for holder, said in book.approved.items()}
        return cbor_bytes({
            "head": [head.session, head.size, head.root, head.time], "signers": signers, "session": book.session,
            "manifest": book.manifest.canonical(), "approved": approved, "keys": book.keys,
            "approved_at": book.approved_at,
        })  # fmt: skip

    @classmethod
    def from_bytes(cls, data: bytes) -> Known:
        """What `to_bytes` wrote; believed, as it comes from the process that verified it."""
        value: dict[str, Any] = cbor_value(data)
        signers = {
            runtime: Signer(key, load_verifier(raw), *rest) for runtime, (key, raw, *rest) in value["signers"].items()
        }
        manifest = parse_manifest(value["manifest"])
        approved = {holder: Dataset(*said) for holder, said in value["approved"].items()}
        book = SignedFor(
            value["session"], manifest, manifest.digest().hex(), approved, value["keys"], value["approved_at"]
        )
        return cls(TreeHead(*value["head"]), Keyring(signers), book)
