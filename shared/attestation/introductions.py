"""The introduction of an orchestrator's life: evidence for its session signing key that no channel has to wait for. Knows no store.

A life signs the log's head from its first commit on, and may end before any holder opens a channel with it (a restart during the export).
So its quote speaks for that key once by itself: runtime data as in a channel, for the holder "*", over a challenge that nobody made. It
proves who signed, not that it is fresh: a head counts only as far as it extends the one that is remembered.
"""

from __future__ import annotations

from typing import Final

from shared.attestation.certificates import moment
from shared.attestation.channel import CLOCK_SLACK_S, OrchestratorExpectation
from shared.attestation.one_time_keys import decoded
from shared.canonical import json_value
from shared.errors import BadRequest, VerificationFailed
from shared.wire.visit import ChannelOffer

ANYBODY: Final = "*"
"""Whom an introduction names as its holder; no party can be called so."""
UNCHALLENGED: Final = bytes(32).hex()
"""Its challenger's nonce. A channel's is drawn by its holder, so none of them can be taken for the other."""


def expected_introduction(
    session: str, manifest: str, enrolled_key: bytes | None, gpu_device: str | None
) -> OrchestratorExpectation:
    """What an introduction must be for `verify_orchestrator`; its GPU answered the orchestrator's own challenge."""
    return OrchestratorExpectation(session, ANYBODY, manifest, UNCHALLENGED, enrolled_key, None, gpu_device)


def judged_at(offer: ChannelOffer, max_age_s: int, now: float, *, since: float) -> float:
    """The time (Unix seconds) that certificates and collateral are judged by: now, or when it was made where it has expired since. What it
    vouches for was signed then, and a log is read for longer than a quote lasts.

    Args:
        since: when this verifier first heard of the session.

    Raises:
        VerificationFailed: `introduction-malformed`; `introduction-backdated`: as `check_made`.
    """
    try:
        not_after = int(json_value(decoded(offer.runtime_data))["not_after"])
        made = float(not_after - max_age_s)
    except (BadRequest, KeyError, TypeError, ValueError, OverflowError):
        raise VerificationFailed("the introduction is malformed", code="introduction-malformed") from None
    if now < not_after:
        return now
    check_made(made, since)
    return made


def check_made(made: float, since: float) -> None:
    """What is judged by the time (Unix seconds) that it names itself is no older than its session: whoever has the key of a machine that
    was revoked dates its quotes to before that.

    Raises:
        VerificationFailed: `introduction-backdated`.
    """
    if made < since - CLOCK_SLACK_S:
        raise VerificationFailed(
            "evidence names a time before its session", code="introduction-backdated", expected=f"{moment(since)} or later",
            got=moment(made),
        )  # fmt: skip
