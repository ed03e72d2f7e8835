"""Ids of sessions and visits: 80 random or derived bits in lower-case base32. Knows no storage."""

from __future__ import annotations

from base64 import b32encode

from shared.claims.session_ids import session_id
from shared.service.clock import Entropy


def _id(prefix: str, value: bytes) -> str:
    return f"{prefix}_{b32encode(value).decode().lower()}"


def new_session_id(owner: str, key: str) -> str:
    """The session of one submission act: the same caller and Idempotency-Key give the same id, also after a crash."""
    return session_id(owner, key)


def new_visit_id(entropy: Entropy) -> str:
    """A fresh visit; a repeated visit is a new one."""
    return _id("v", entropy(10))


def new_channel_id(entropy: Entropy) -> str:
    """A fresh channel to a holder."""
    return _id("c", entropy(10))


def new_offer_id(entropy: Entropy) -> str:
    """A fresh offer to take a holder's share."""
    return _id("o", entropy(10))


def new_checkpoint_name(entropy: Entropy) -> str:
    """A fresh checkpoint; its name derives its key, so no name is used twice."""
    return _id("k", entropy(10))
