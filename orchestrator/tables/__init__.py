"""The orchestrator's tables. Rows are projections and pointers: what decides is the journal, signatures and digests;
and, of who may write at all, the lease.

Knows no behaviour. Migration: `orchestrator/migrations`.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Double,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

METADATA = MetaData()

PARTIES = Table(
    "parties", METADATA,
    Column("name", String(63), primary_key=True),
    Column("role", String(16), nullable=False),
    Column("public_key", String(64), nullable=False),
    Column("fingerprint", String(64), nullable=False, unique=True),
    Column("enrolled_at", Float, nullable=False),
)  # fmt: skip

PARTY_KEYS = Table(
    "party_keys", METADATA,  # every key that a party ever had; the newest one is also in its row of `parties`
    Column("number", Integer, primary_key=True, autoincrement=True),  # order of coming; the listing's cursor
    Column("fingerprint", String(64), nullable=False, unique=True),
    Column("name", String(63), nullable=False, index=True),
    Column("public_key", String(64), nullable=False),
    Column("valid_from", Float, nullable=False),
    Column("valid_until", Float),  # NULL: it counts
    Column("came", String(8), nullable=False),  # enrolled | rotated | replaced
    Column("came_by", String(63), nullable=False),
    Column("ended_by", String(63)),
    Column("previous", String(64)),  # fingerprint of the key whose place it took
    Column("statement", JSON),  # SignedRotation, where the previous key said so itself
)  # fmt: skip

PROGRAMS = Table(
    "programs", METADATA,
    Column("digest", String(96), primary_key=True),
    Column("archive_sha256", String(64), nullable=False),
    Column("archive_bytes", BigInteger, nullable=False),
    Column("summary", JSON, nullable=False),
    Column("stored_at", Float, nullable=False),
)  # fmt: skip

FILES = Table(
    "files", METADATA,
    Column("kind", String(16), primary_key=True),  # weights | validation
    Column("digest", String(64), primary_key=True),
    Column("size_bytes", BigInteger, nullable=False),
    Column("stored_at", Float, nullable=False),
)  # fmt: skip

SESSIONS = Table(
    "sessions", METADATA,
    Column("id", String(18), primary_key=True),
    Column("number", Integer, nullable=False, unique=True),  # order of submission; the listing's cursor
    Column("owner", String(63), nullable=False),
    Column("owner_key", String(64), nullable=False),
    Column("manifest", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
    Column("gpu", String(63), nullable=False),
    Column("phase", String(20), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("created_at", Float, nullable=False),
    Column("updated_at", Float, nullable=False),
    Column("summary", JSON, nullable=False),
)  # fmt: skip

APPROVALS = Table(
    "approvals", METADATA,
    Column("session", String(18), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("holder", String(63), nullable=False),
    Column("decision", String(8), nullable=False),
    Column("document", LargeBinary, nullable=False),
    Column("signature", LargeBinary, nullable=False),
    Column("at", Float, nullable=False),
)  # fmt: skip

VISITS = Table(
    "visits", METADATA,
    Column("id", String(18), primary_key=True),
    Column("session", String(18), nullable=False),
    Column("number", BigInteger, nullable=False),  # order of planning within the session; the listing's cursor
    Column("holder", String(63), nullable=False),
    Column("phase", String(16), nullable=False),
    Column("data", JSON, nullable=False),
    Index("visits_by_session", "session", "number", unique=True),
)  # fmt: skip

LOSSES = Table(
    "losses", METADATA,
    Column("session", String(18), primary_key=True),
    Column("visit", String(18), primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("holder", String(63), nullable=False),
    Column("loss", Float, nullable=False),
)  # fmt: skip

LEAVES = Table(
    "log_leaves", METADATA,
    Column("session", String(18), primary_key=True),
    Column("idx", BigInteger, primary_key=True),
    Column("kind", String(8), nullable=False),  # receipt | event
    Column("leaf", LargeBinary, nullable=False),
    Column("visit", String(18)),
    Column("holder", String(63)),
    Column("outcome", String(16)),
    Index("leaves_by_holder", "session", "holder", "idx"),
)  # fmt: skip

CHANNELS = Table(
    "channels", METADATA,
    Column("channel", String(40), primary_key=True),
    Column("session", String(18), nullable=False, index=True),
    Column("holder", String(63), nullable=False),
    Column("life", Integer, nullable=False),
    Column("boot_counter", Integer, nullable=False),
    Column("signing_key", String(64), nullable=False),
    Column("runtime_data", Text, nullable=False),
    Column("evidence", JSON, nullable=False),
    Column("gpu_evidence", JSON, nullable=False),
    Column("holder_runtime_data", Text, nullable=False),
    Column("opened_at", Float, nullable=False),
    Column("emulated", Boolean, nullable=False),
)  # fmt: skip

ATTESTATIONS = Table(
    "attestations", METADATA,
    Column("number", Integer, primary_key=True, autoincrement=True),  # the listing's cursor
    Column("session", String(18), nullable=False, index=True),
    Column("subject", String(80), nullable=False),  # gpu | cvm:HOLDER
    Column("life", Integer, nullable=False),
    Column("signing_key", String(64), nullable=False),
    Column("token", Text, nullable=False),
)  # fmt: skip

HEADS = Table(
    "tree_heads", METADATA,
    Column("session", String(18), primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("root", String(64), nullable=False),
    Column("time", BigInteger, nullable=False),
    Column("signature", LargeBinary, nullable=False),
    Column("signing_key", String(64), nullable=False),
)  # fmt: skip

LEASES = Table(
    "leases", METADATA,
    Column("name", String(63), primary_key=True),  # of the deployment
    Column("token", BigInteger, nullable=False),  # grows with every taking
    Column("holder", String(64), nullable=False),
    Column("identity", String(64), nullable=False),  # fingerprint
    Column("seal", LargeBinary),
    Column("expires_at", DateTime(timezone=True)),  # by the database's clock; NULL: nobody holds it
)  # fmt: skip

PURGES = Table(
    "purges", METADATA,
    Column("stream", String(18), primary_key=True),  # a session that is there no more, whose rows and files are on their way out
    Column("at", Float, nullable=False),
)  # fmt: skip

REMOVALS = Table(
    "removals", METADATA,  # ended sessions that their owners want gone, and that wait for holders
    Column("session", String(18), primary_key=True),
    Column("asked_at", Float, nullable=False),
)  # fmt: skip

ENDS_HEARD = Table(
    "ends_heard", METADATA,  # who has heard of a session's end and has its last receipts
    Column("session", String(18), primary_key=True),
    Column("holder", String(63), primary_key=True),
    Column("at", Float, nullable=False),
)  # fmt: skip

SESSION_KEYS = Table(
    "session_keys", METADATA,
    Column("session", String(18), primary_key=True),
    Column("sealed", LargeBinary, nullable=False),  # the session key, under a key of this CVM
    Column("key_check", LargeBinary, nullable=False),  # 32 bytes
    Column("digests", JSON, nullable=False),  # holder -> of its share, hex
)  # fmt: skip

SECRETS = Table(
    "session_secrets", METADATA,
    Column("session", String(18), primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
)  # fmt: skip

MODEL_FETCHES = Table(
    "model_fetches", METADATA,  # as the journal, by session: who fetched its finished model
    Column("stream", String(18), primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("kind", String(16), nullable=False),
    Column("at", Double, nullable=False),  # comes back bit for bit, as the chain needs it
    Column("body", Text, nullable=False),
    Column("chain", LargeBinary, nullable=False),
)  # fmt: skip
