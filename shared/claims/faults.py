"""What is wrong with a manifest, one entry per field: where, why, what to do about it. Knows no HTTP, no storage and no file.

The orchestrator refuses with it, and the command line says the same before anything is sent.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from shared.canonical import json_value
from shared.claims.manifest import (
    Acceptance,
    Contributor,
    EvidencePolicy,
    GpuRules,
    Manifest,
    OutputPolicy,
    Predecessor,
    RosterEntry,
    Validation,
)
from shared.claims.privacy import Privacy
from shared.claims.shape import MAX_FIELDS, MAX_PART, faults_of, holds_more, path_of, too_many
from shared.claims.snp_rules import SnpRules, TcbMinimum
from shared.claims.tdx_policy import TdxPolicy
from shared.claims.training import SGD, AdamW, Schedule, TrainingOptions
from shared.errors import BadRequest, InvalidManifest

M = TypeVar("M", bound=BaseModel)
MODELS: tuple[type[BaseModel], ...] = (
    Manifest, RosterEntry, Predecessor, Contributor, EvidencePolicy, GpuRules, TdxPolicy, SnpRules, TcbMinimum, Validation,
    Acceptance, Privacy, OutputPolicy, TrainingOptions, AdamW, SGD, Schedule,
)  # fmt: skip
"""Everything that a manifest is made of, in the order of docs/manifest.md."""
_NAMES = {known for model in MODELS for known in model.model_fields}
MOST_VALUES = 100_000
"""Numbers, texts, lists and objects in one manifest; more than the largest roster, predecessor and policies come to."""
MAX_SHOWN = 40
_HEX = re.compile(r"\^\[0-9a-f\]\{(\d+)\}\$")
_FOUND_BY = {
    "program": "`gput program inspect FILE` prints it.",
    "key": "`gput party list` prints every holder's.",
    "dataset": "`gput data pack` prints it.",
}


@dataclass(frozen=True)
class Finding:
    """One thing wrong with a manifest."""

    field: str
    reason: str
    remedy: str
    code: str = "invalid-manifest"


class ManifestRefused(InvalidManifest):
    """A manifest with findings; the first one's code stands for all of them.

    Args:
        findings: of which the first `MAX_FIELDS` are told one by one.
        where: what to say before the first finding, for instance the file's name.
        count: how many there are, if that is more than are given.
    """

    def __init__(self, findings: list[Finding], where: str = "", count: int | None = None) -> None:
        first, others = findings[0], (count or len(findings)) - 1
        more = f" (and {others} more)" if others else ""
        super().__init__(f"{where}{first.field}: {first.reason}{more}", code=first.code, remedy=first.remedy)
        self.errors = [
            {"field": f.field, "message": f.reason, "reason": f.reason, "remedy": f.remedy, "code": f.code}
            for f in findings[:MAX_FIELDS]
        ]


def judged(data: bytes, where: str = "") -> Manifest:
    """The manifest in these bytes.

    Raises:
        ManifestRefused: no JSON, not a manifest, an unknown field or feature; with every finding, as far as they are counted.
    """
    return _judged(data, where, Manifest, "manifest")


def judged_policy(data: bytes, where: str = "") -> EvidencePolicy:
    """The evidence policy in these bytes, as it stands in a manifest. Raises: ManifestRefused: as `judged`."""
    return _judged(data, where, EvidencePolicy, "policy")


def _judged(data: bytes, where: str, model: type[M], what: str) -> M:
    try:
        value = json_value(data)
    except BadRequest as error:
        raise ManifestRefused([Finding("document", error.detail, f"Write the {what} as JSON.")], where) from None
    if holds_more(value, MOST_VALUES):
        raise ManifestRefused([
            Finding("document", f"holds more than {MOST_VALUES} values", f"Send a {what}; none holds so many.")
        ], where)  # fmt: skip
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _refused(error, where) from None


def _refused(error: ValidationError, where: str) -> ManifestRefused:
    faults = faults_of(error, whole=True)
    if not faults:
        return ManifestRefused(
            [Finding("manifest", too_many(error.error_count()), "Correct it; docs/manifest.md lists all fields.")],
            where,
        )
    outer = {fault["loc"][:length] for fault in faults for length in range(len(fault["loc"]))}
    # One that is too short and has faults inside has entries enough, but they are wrong themselves.
    told = [fault for fault in faults if fault["type"] != "too_short" or fault["loc"] not in outer]
    found = [_finding(path_of(fault["loc"]) or "manifest", fault) for fault in told[:MAX_FIELDS]]
    return ManifestRefused(found, where, len(told))


def _finding(field: str, fault: dict[str, Any]) -> Finding:
    about: dict[str, Any] = fault.get("ctx") or {}
    say = _WORDS.get(str(fault["type"]))
    if say is not None:
        return say(field, fault, about)
    reason = (
        str(about["error"]) if fault["type"] == "value_error" else str(fault["msg"]).replace("Input should", "must")
    )
    return Finding(field, reason, "Correct the value.")


def _missing(field: str, _fault: dict[str, Any], _about: dict[str, Any]) -> Finding:
    return Finding(field, "is missing", "State it; docs/manifest.md says what it means.")


def _unknown(field: str, _fault: dict[str, Any], _about: dict[str, Any]) -> Finding:
    name = field.rsplit(".", 1)[-1]
    near = difflib.get_close_matches(name, _NAMES, 1) if len(name) <= MAX_PART else []
    remedy = f"Remove the field, or write {near[0]} if that is what you mean." if near else "Remove the field."
    return Finding(field, "no such field or feature exists", remedy, "unsupported-feature")


def _unsupported(field: str, fault: dict[str, Any], about: dict[str, Any]) -> Finding:
    wanted = str(about.get("expected") or about.get("expected_tags"))
    given = fault.get("input")
    if isinstance(given, dict) and "discriminator" in about:
        given = given.get(about["discriminator"].strip("'"))
    one_of = "one of " if "," in wanted else ""
    shown = repr(given) if _may_be_shown(given) else "this value"
    return Finding(field, f"{shown} is not supported", f"Write {one_of}{wanted}.", "unsupported-feature")


def _may_be_shown(given: object) -> bool:
    """The name of a kind or feature, and nothing that an answer or a log would have to carry for its sender."""
    return isinstance(given, str) and len(given) <= MAX_SHOWN and given.isprintable()


def _no_kind(field: str, _fault: dict[str, Any], about: dict[str, Any]) -> Finding:
    return Finding(
        field, f"does not say its {about['discriminator'].strip(chr(39))}", 'Write for instance "kind": "adamw".'
    )


def _too_short(field: str, _fault: dict[str, Any], about: dict[str, Any]) -> Finding:
    return Finding(field, f"has {about['actual_length']} entries", f"Write at least {about['min_length']}.")


def _pattern(field: str, fault: dict[str, Any], about: dict[str, Any]) -> Finding:
    digits, length = _HEX.fullmatch(str(about["pattern"])), len(str(fault["input"]))
    if digits is None:
        return Finding(field, f"does not have the form {about['pattern']}", "Correct the value.")
    where = _FOUND_BY.get(field.rsplit(".", 1)[-1], "Correct the value.")
    return Finding(field, f"is not {digits[1]} lower-case hexadecimal digits (it has {length} characters)", where)


_WORDS: dict[str, Callable[[str, dict[str, Any], dict[str, Any]], Finding]] = {
    "missing": _missing,
    "too_short": _too_short,
    "extra_forbidden": _unknown,
    "literal_error": _unsupported,
    "enum": _unsupported,
    "union_tag_invalid": _unsupported,
    "union_tag_not_found": _no_kind,
    "string_pattern_mismatch": _pattern,
}
