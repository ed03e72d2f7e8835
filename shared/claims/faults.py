"""What is wrong with a manifest, one entry per field: where, why, what to do about it. Knows no HTTP, no storage and no file.

The orchestrator refuses with it, and the command line says the same before anything is sent.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

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
    parse_manifest,
)
from shared.claims.privacy import Privacy
from shared.claims.snp_rules import SnpRules, TcbMinimum
from shared.claims.tdx_policy import TdxPolicy
from shared.claims.training import SGD, AdamW, Schedule, TrainingOptions
from shared.errors import BadRequest, InvalidManifest

MODELS: tuple[type[BaseModel], ...] = (
    Manifest, RosterEntry, Predecessor, Contributor, EvidencePolicy, GpuRules, TdxPolicy, SnpRules, TcbMinimum, Validation,
    Acceptance, Privacy, OutputPolicy, TrainingOptions, AdamW, SGD, Schedule,
)  # fmt: skip
"""Everything that a manifest is made of, in the order of docs/manifest.md."""
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
        where: what to say before the first finding, for instance the file's name.
    """

    def __init__(self, findings: list[Finding], where: str = "") -> None:
        first = findings[0]
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        super().__init__(f"{where}{first.field}: {first.reason}{more}", code=first.code, remedy=first.remedy)
        self.errors = [
            {"field": f.field, "message": f.reason, "reason": f.reason, "remedy": f.remedy, "code": f.code}
            for f in findings
        ]


def judged(data: bytes, where: str = "") -> Manifest:
    """The manifest in these bytes.

    Raises:
        ManifestRefused: no JSON, not a manifest, an unknown field or feature; with every finding.
    """
    try:
        return parse_manifest(data)
    except ValidationError as error:
        raise ManifestRefused(list(_findings(error)), where) from None
    except BadRequest as error:
        raise ManifestRefused([Finding("document", error.detail, "Write the manifest as JSON.")], where) from None


def judged_policy(data: bytes, where: str = "") -> EvidencePolicy:
    """The evidence policy in these bytes, as it stands in a manifest. Raises: ManifestRefused: with every finding."""
    try:
        return EvidencePolicy.model_validate(json_value(data))
    except ValidationError as error:
        raise ManifestRefused(list(_findings(error)), where) from None
    except BadRequest as error:
        raise ManifestRefused([Finding("document", error.detail, "Write the policy as JSON.")], where) from None


def _findings(error: ValidationError) -> Iterator[Finding]:
    faults: list[dict[str, Any]] = [dict(item) for item in error.errors(include_url=False)]
    for fault in faults:
        inside = [other for other in faults if other is not fault and other["loc"][: len(fault["loc"])] == fault["loc"]]
        if fault["type"] == "too_short" and inside:
            continue  # it has entries enough, but they are wrong themselves
        yield _finding(".".join(str(part) for part in fault["loc"]) or "manifest", fault)


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
    names = {known for model in MODELS for known in model.model_fields}
    near = difflib.get_close_matches(name, names, 1)
    remedy = f"Remove the field, or write {near[0]} if that is what you mean." if near else "Remove the field."
    return Finding(field, "no such field or feature exists", remedy, "unsupported-feature")


def _unsupported(field: str, fault: dict[str, Any], about: dict[str, Any]) -> Finding:
    wanted = str(about.get("expected") or about.get("expected_tags"))
    given = about.get("tag", fault.get("input"))
    one_of = "one of " if "," in wanted else ""
    return Finding(field, f"{given!r} is not supported", f"Write {one_of}{wanted}.", "unsupported-feature")


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
