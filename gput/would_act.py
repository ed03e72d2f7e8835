"""Why an act would be refused as things stand, from what the services tell of them, for --dry-run. Asks nobody, knows no terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from shared.claims.manifest import PartyName
from shared.errors import BadRequest
from shared.names import SessionPhase
from shared.protocol.session import SESSION, TRANSITIONS, SessionFact

OWNERS = {
    "pause": (SessionFact.PAUSE_ASKED, SessionPhase.PAUSED),
    "resume": (SessionFact.RESUMED, SessionPhase.RUNNING),
    "cancel": (SessionFact.CANCELLED, SessionPhase.CANCELLED),
}
"""What an owner's word is in the session's table, and the phase in which it was said before and changes nothing."""
ENDED = tuple(phase for phase in SESSION.phases() if SESSION.final(phase))
DONE = {"approve": "approved", "refuse": "refused", "veto": "vetoed"}
"""How a request stands after a holder's word."""
SAID = {"waiting": None} | {state: word for word, state in DONE.items()}
"""Which word of a holder made a request's state; that of an ended session says nothing of it."""
_NAME: TypeAdapter[str] = TypeAdapter(PartyName)


def session_act(action: str, view: Mapping[str, Any], me: Mapping[str, Any]) -> list[str]:
    """Of an owner's `pause`, `resume` or `cancel`: `view` is the session's, `me` is who asks."""
    fact, done = OWNERS[action]
    takes = {phase for phase, what in TRANSITIONS if what is fact} | {done}
    reasons = [] if view["phase"] in takes else [f"a session that is {view['phase']} takes no {action}"]
    return reasons + (
        [] if me["name"] == view["owner"] else [f"only its owner, {view['owner']}, may; you are {me['name']}"]
    )


def holder_act(verb: str, view: Mapping[str, Any], body: Mapping[str, Any]) -> list[str]:
    """Of a holder's `approve`, `refuse` or `veto`: `view` is the request's, `body` what the service would be sent."""
    said, state = _decision(view), view["state"]
    same_data = body.get("dataset") in (None, view["dataset"])
    if said == verb and same_data and (view["reason"] or "") == body["reason"] and not body.get("anew"):
        return []  # the very same was said, which is answered as the first time
    if state == "ended" and verb != "veto":
        return [f"the session is {view['phase']}"]
    if verb == "veto" or body.get("anew"):
        what = "vetoed" if verb == "veto" else "approved anew"
        now = state if said is None else DONE[said]
        return [] if said == "approve" else [f"only an approved session can be {what}; it is {now}"]
    return [] if said is None else [f"it was decided before: {DONE[said]}"]


def _decision(view: Mapping[str, Any]) -> str | None:
    """The holder's newest word. A service of before the field `decision` tells an ended request's by its dataset, which approvals alone
    name: whether it was vetoed after that, it does not say."""
    if "decision" in view:
        return None if view["decision"] is None else str(view["decision"])
    if view["state"] != "ended":
        return SAID[view["state"]]
    if view["decided_at"] is None:
        return None
    return "refuse" if view["dataset"] is None else "approve"


def enrolment(
    name: str, role: str, key: str, me: Mapping[str, Any], parties: Sequence[Mapping[str, Any]],
    used: Sequence[Mapping[str, Any]],
) -> list[str]:  # fmt: skip
    """Of a party under the key with this fingerprint: `used` names whose every key is, or was."""
    reasons = _owners_only(me)
    party = next((party for party in parties if party["name"] == name), None)
    if party is None:
        return reasons + _no_name(name) + _somebodys(key, used)
    if (party["key"], party["role"]) != (key, role):
        reasons.append(f"{name} is enrolled already, as {party['role']} with key {party['key']}")
    elif party["key_valid_until"] is not None:
        reasons.append(f"{name}'s key was revoked: `gput party replace-key`")
    return reasons


def _no_name(name: str) -> list[str]:
    try:
        _NAME.validate_python(name)
    except ValidationError:
        return [f"{name!r} is no party's name: lower-case letters, digits and hyphens, 63 at most, no hyphen first"]
    return []


def _somebodys(key: str, used: Sequence[Mapping[str, Any]]) -> list[str]:
    return sorted({f"this key is or was {party['name']}'s" for party in used if party["key"] == key})


def replacement(
    name: str, key: str, me: Mapping[str, Any], used: Sequence[Mapping[str, Any]], sessions: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Of `name`'s key by the one with this fingerprint: `used` names whose every key is, or was, `sessions` are all."""
    return _owners_only(me) + _somebodys(key, used) + rotation(name, sessions)


def rotation(name: str, sessions: Sequence[Mapping[str, Any]]) -> list[str]:
    """Of any change of `name`'s key: `sessions` are all that it is in."""
    going_on = [
        session["id"]
        for session in sessions
        if session["phase"] not in ENDED and any(entry["holder"] == name for entry in session["holders"])
    ]
    if not going_on:
        return []
    return [f"{name}'s key stands in the manifest of {', '.join(going_on[:5])}, which has not ended"]


def _owners_only(me: Mapping[str, Any]) -> list[str]:
    return [] if "owner" in me["role"].split(", ") else [f"only an owner may; {me['name']} is {me['role']}"]


def refuse_if(reasons: Sequence[str]) -> None:
    """Raises: BadRequest `would-be-refused`, with every reason."""
    if reasons:
        raise BadRequest(f"nothing was done, and it would be refused: {'; '.join(reasons)}", code="would-be-refused")


__all__ = ["enrolment", "holder_act", "refuse_if", "replacement", "rotation", "session_act"]
