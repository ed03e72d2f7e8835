"""Why an act would be refused as things stand, from what the services tell of them, for --dry-run. Asks nobody, knows no terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shared.errors import BadRequest
from shared.names import SessionPhase
from shared.protocol.session import SESSION, TRANSITIONS, SessionFact

OWNERS = {
    "pause": (SessionFact.PAUSE_ASKED, SessionPhase.PAUSED),
    "resume": (SessionFact.RESUMED, SessionPhase.RUNNING),
    "cancel": (SessionFact.CANCELLED, SessionPhase.CANCELLED),
}
"""What an owner's word is in the session's table, and the phase in which it was said before and changes nothing."""
DONE = {"approve": "approved", "refuse": "refused", "veto": "vetoed"}
"""How a request stands after a holder's word."""


def session_act(action: str, view: Mapping[str, Any], me: Mapping[str, Any]) -> list[str]:
    """Of an owner's `pause`, `resume` or `cancel`: `view` is the session's, `me` is who asks."""
    fact, done = OWNERS[action]
    takes = {phase for phase, what in TRANSITIONS if what is fact} | {done}
    reasons = [] if SessionPhase(view["phase"]) in takes else [f"a session that is {view['phase']} takes no {action}"]
    return reasons + (
        [] if me["name"] == view["owner"] else [f"only its owner, {view['owner']}, may; you are {me['name']}"]
    )


def holder_act(verb: str, view: Mapping[str, Any], body: Mapping[str, Any]) -> list[str]:
    """Of a holder's `approve`, `refuse` or `veto`: `view` is the request's, `body` what the service would be sent."""
    state = view["state"]
    if _said_before(verb, view, body):
        return []
    if state == "ended" and verb != "veto":
        return [f"the session is {view['phase']}"]
    if verb == "veto" or body.get("anew"):
        allowed = ("approved", "ended") if view["decided_at"] is not None else ()
        what = "vetoed" if verb == "veto" else "approved anew"
        return [] if state in allowed else [f"only an approved session can be {what}; it is {state}"]
    return [] if state == "waiting" else [f"it was decided before: {state}"]


def _said_before(verb: str, view: Mapping[str, Any], body: Mapping[str, Any]) -> bool:
    """The very same was said, which is answered as the first time."""
    same_data = body.get("dataset") in (None, view["dataset"])
    return (
        view["state"] == DONE[verb] and same_data and (view["reason"] or "") == body["reason"] and not body.get("anew")
    )


def enrolment(name: str, role: str, key: str, me: Mapping[str, Any], parties: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of a party under the key with this fingerprint."""
    reasons = _owners_only(me)
    for party in parties:
        if party["name"] == name and (party["key"], party["role"]) != (key, role):
            reasons.append(f"{name} is enrolled already, as {party['role']} with key {party['key']}")
        elif party["name"] == name and party["key_valid_until"] is not None:
            reasons.append(f"{name}'s key was revoked: `gput party replace-key`")
        elif party["name"] != name and party["key"] == key:
            reasons.append(f"this key is {party['name']}'s")
    return reasons


def replacement(
    name: str, key: str, me: Mapping[str, Any], used: Sequence[Mapping[str, Any]], sessions: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Of `name`'s key by the one with this fingerprint: `used` names whose every key is, or was, `sessions` are all."""
    reasons = _owners_only(me)
    reasons += sorted({f"this key is or was {party['name']}'s" for party in used if party["key"] == key})
    going_on = [
        session["id"]
        for session in sessions
        if not SESSION.final(SessionPhase(session["phase"]))
        and any(entry["holder"] == name for entry in session["holders"])
    ]
    if going_on:
        reasons.append(f"{name}'s key stands in the manifest of {', '.join(going_on[:5])}, which has not ended")
    return reasons


def _owners_only(me: Mapping[str, Any]) -> list[str]:
    return [] if "owner" in me["role"].split(", ") else [f"only an owner may; {me['name']} is {me['role']}"]


def refuse_if(reasons: Sequence[str]) -> None:
    """Raises: BadRequest `would-be-refused`, with every reason."""
    if reasons:
        raise BadRequest(f"nothing was done, and it would be refused: {'; '.join(reasons)}", code="would-be-refused")


__all__ = ["enrolment", "holder_act", "refuse_if", "replacement", "session_act"]
