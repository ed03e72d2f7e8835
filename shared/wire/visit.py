"""Messages between orchestrator and data holder, as JSON bodies. Knows no HTTP, no key.

Signed documents travel as the exact bytes that were signed (base64 of canonical JSON); readers hash bytes as received.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field

from shared.claims import Claim, Grown
from shared.claims.manifest import PartyName
from shared.claims.profile import DatasetProfile
from shared.claims.program import HexSha256
from shared.claims.visit import Grant, SessionId, VisitId, VisitTimers

Base64 = Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]*={0,2}$", max_length=8 * 1024 * 1024)]
Nonce = HexSha256  # 32 random bytes, hex


class Evidence(Claim):
    """CPU TEE evidence: `quote` covers `report_data` = SHA-512(label 00 ‖ runtime_data bytes); `kind` chooses the verifier.

    What its maker signed may come along in `endorsements`, what the guest measured in `event_log` (our own events) and `boot_log` (the
    firmware's, as in the ACPI table CCEL). None of them is believed by itself.

    "tdx-quote": a TDX quote and its collateral. "snp-report": an SEV-SNP report and the host's certificate table.
    """

    kind: Literal["tdx-quote", "snp-report"] = "tdx-quote"
    quote: Base64
    endorsements: Base64 = ""
    event_log: Base64 = ""
    boot_log: Base64 = ""


class GpuEvidence(Grown):
    """SPDM request ‖ response report, PEM chain leaf first, and what the 32-byte nonce was made of (design 4.2 step 4).

    nonce = SHA-256(CBOR["gput/gpu-nonce", challenge, TH2, epoch, SHA-256(signing key)]). `statement_key`: COSE_Sign1 by the leaf over the
    device statement key, or "" where a device has none. `ocsp`: stapled responses (DER).
    """

    later = ("ocsp",)
    report: Base64
    chain: str = Field(max_length=0x1400 * 2)
    challenge: Nonce
    th2: Annotated[str, Field(pattern=r"^[0-9a-f]{96}$")]
    epoch: int = Field(ge=0)
    statement_key: Base64 = ""
    ocsp: tuple[Base64, ...] = Field(default=(), max_length=32)


class RuntimeData(Claim):
    """What a quote speaks for: canonical JSON of this is hashed into report_data. Keys are raw Ed25519 public keys, hex.

    `peer_nonce` is the challenger's, `nonce` one's own; `previous` is SHA-256 of the peer's runtime_data bytes (holder's side only).
    `holder` is "*" in the introduction of an orchestrator's life, which is for everybody (`shared.attestation.introductions`).
    """

    profile: Literal["gput/asc/1"] = "gput/asc/1"
    role: Literal["orchestrator", "holder"]
    session: SessionId
    holder: PartyName | Literal["*"]
    manifest: HexSha256
    peer_nonce: Nonce
    nonce: Nonce
    signing_key: HexSha256
    enrolled_key: HexSha256
    gpu_evidence: HexSha256 | None = None
    previous: HexSha256 | None = None
    not_after: int = Field(ge=0, lt=1 << 53)


class ChannelRequest(Claim):
    """Holder -> orchestrator, POST /v1/sessions/{id}/channels: attest yourself to me."""

    nonce: Nonce


class ChannelOffer(Claim):
    """Orchestrator -> holder: the orchestrator's proof, and the challenge for the holder's."""

    channel: str
    runtime_data: Base64
    evidence: Evidence
    gpu_evidence: GpuEvidence


class OneTimeKey(Claim):
    """Canonical JSON of this, signed by the holder's session signing key: the HPKE public key (raw, base64) of the next visit."""

    session: SessionId
    holder: PartyName
    channel: str
    nonce: Nonce
    suite: Literal["MLKEM768_X25519/HKDF_SHA256/AES_256_GCM"] = "MLKEM768_X25519/HKDF_SHA256/AES_256_GCM"
    key: Base64
    share: HexSha256 | None = Field(
        default=None, description="the holder's X25519 share of the visit's traffic key, in travel mode `direct`"
    )


class Signed(Claim):
    """A document's exact bytes and an Ed25519 signature (64 bytes) over `label 00 ‖ document`."""

    document: Base64
    signature: Base64


class ChannelProof(Claim):
    """Holder -> orchestrator, PUT /v1/sessions/{id}/channels/{channel}: the holder's proof and its first one-time key."""

    runtime_data: Base64
    evidence: Evidence
    one_time_key: Signed
    share_key: Signed | None = Field(
        default=None, description="a one-time key for the share alone, label gput/share-key"
    )


class DealtShare(Claim):
    """The holder's share of the session's key, sealed to its share key, and the orchestrator's signature.

    `sealed` = HPKE to the share key, info = SHA-512("gput/asc/1 share" 00 ‖ share-key document), plaintext = 33 bytes.
    `signature` (Ed25519, session signing key) covers "gput/dealt-share" 00 ‖ SHA-512("gput/dealt-share" 00 ‖ share-key document ‖ sealed).
    """

    sealed: Base64
    signature: Base64


class ChannelState(Grown):
    """Answer to a ChannelProof. `share`: absent in a session without a session key."""

    later = ("share",)
    channel: str
    state: Literal["open"] = "open"
    share: DealtShare | None = None


class VisitOffer(Claim):
    """Orchestrator -> holder through the inbox: canonical JSON of OfferDocument, the sealed visit key, the orchestrator's signature.

    `signature` (Ed25519, session signing key) covers "gput/offer" 00 ‖ SHA-512("gput/offer" 00 ‖ one-time-key document ‖ offer document ‖
    sealed).
    `sealed` = HPKE to the one-time key, info = SHA-512("gput/asc/1 seal" 00 ‖ offer document), plaintext = CBOR VisitKey.
    """

    document: Base64
    sealed: Base64
    signature: Base64


class OfferDocument(Claim):
    """What the holder checks before it touches the visit key. `agent_url` is where the port is; nothing is trusted about it."""

    profile: Literal["gput/offer/1"] = "gput/offer/1"
    channel: str
    manifest: HexSha256
    grant: Grant
    gpu: str
    agent_url: str
    one_time_key: HexSha256
    iv_epoch: int = Field(ge=1)
    round: int = Field(ge=1)
    index: int = Field(ge=1)
    attempt: int = Field(ge=1)
    gpu_share: Base64 = Field(
        default="", description="the GPU's signed statement of its share, in travel mode `direct`"
    )
    log_size: int = Field(ge=0)
    log_root: HexSha256
    log_time: int = Field(ge=0, description="the time inside the signed tree head")
    log_signature: Base64
    log_consistency: list[HexSha256] = Field(default_factory=list, max_length=64)
    log_from: int = Field(default=0, ge=0, description="the tree size that `log_consistency` starts from")


class VisitReport(Claim):
    """Holder -> orchestrator, POST /v1/visits/{id}/report. The next one-time key rides along."""

    visit: VisitId
    epoch: int = Field(ge=0, lt=2**53)
    # What is reported is written down as a fact, which has a canonical form only for such numbers (RFC 7493 2.2).
    records: int = Field(ge=0, lt=2**53)
    length: int = Field(ge=0, lt=2**53)
    commitment: HexSha256
    timers: VisitTimers
    bytes_sent: int = Field(ge=0, lt=2**53)
    link: Literal["http", "bounce"] = Field(default="http", description="how the records came to the GPU")
    next_key: Signed | None = None


class VisitRefusal(Claim):
    """Holder -> orchestrator, POST /v1/visits/{id}/refusal: it will not or cannot provision."""

    visit: VisitId
    epoch: int = Field(ge=0, lt=2**53)
    code: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,64}$")]
    detail: str = Field(max_length=500)


Decision = Literal["approve", "refuse", "veto"]
"""What a holder says of a manifest."""


class Approval(Grown):
    """Canonical JSON of this is signed by the holder's enrolled key (label "gput/approval").

    Only an approval states the dataset, by number, size and root; every visit's records are proven within it. `profile` is what the
    holder says of its fields, for all profiles of a session to be compared; a holder of before there was one states none.
    """

    later = ("profile",)
    session: SessionId
    holder: PartyName
    manifest: HexSha256
    decision: Decision
    reason: str = Field(default="", max_length=500)
    records: int | None = Field(default=None, ge=1, description="records this holder brings")
    record_bytes: int | None = Field(default=None, ge=1)
    dataset_root: HexSha256 | None = Field(
        default=None, description="commitment to those records, see the protocol page"
    )
    profile: DatasetProfile | None = Field(
        default=None, description="fields, units, classes and coarse sizes of the dataset"
    )
    at: int = Field(ge=0)


class HeadStatement(Claim):
    """Canonical JSON of this is signed by the holder's enrolled key (label "gput/head-statement"), POST /v1/sessions/{id}/heads.

    "Of this session's log I remember `size` leaves under `root`." Without a memory: size 0 and the empty tree's root, SHA-256 of nothing.
    `receipt` is the leaf hash of the newest receipt that this holder verified: offers show heads, and the last visit's close comes after.
    `challenge` is that of the orchestrator's start that asks, so that no older statement can stand for this one.
    """

    profile: Literal["gput/head-statement/1"] = "gput/head-statement/1"
    session: SessionId
    holder: PartyName
    challenge: Nonce
    size: int = Field(ge=0, le=2**53)
    root: HexSha256
    receipt: HexSha256 | None = None


class InboxItem(Grown):
    """One thing that waits for a holder. `kind` says which field is set.

    With a manifest comes whose it is, to a holder that asks for it (`?owners=true`): the owner's key and its signature over the manifest's
    bytes (`shared.attestation.owners`). An orchestrator of before sends neither.
    """

    later = ("owner_key", "owner_signature")
    seq: int = Field(ge=0, le=2**53)
    kind: Literal["approval_wanted", "head_wanted", "channel_wanted", "share_wanted", "offer", "receipt", "ended"]
    session: SessionId
    manifest: Base64 | None = None
    owner_key: HexSha256 | None = Field(default=None, description="raw Ed25519 public key, hex")
    owner_signature: Base64 | None = None
    challenge: Nonce | None = None
    offer: VisitOffer | None = None
    receipt: Base64 | None = None
    receipt_index: int | None = Field(
        default=None, ge=0, lt=2**53, description="the leaf of the log that the receipt is"
    )
    phase: str | None = None

    def without_owner(self) -> Self:
        """The item as holders of before know it."""
        return self.model_copy(update={"owner_key": None, "owner_signature": None})


MOST_ITEMS = 8192
"""Of one answer. An orchestrator says of each session that goes on what it waits for, and of 250 at most that they are over: this is far
more than one holder takes part in, also after a long absence."""


class Inbox(Claim):
    """Answer to GET /v1/inbox?after=SEQ&wait=SECONDS: everything after `after`; empty when the wait ran out."""

    items: list[InboxItem] = Field(max_length=MOST_ITEMS)
    next: int = Field(ge=0, le=2**53, description="the next question's `after`")
