"""The id of an appraisal policy: a digest over what it says. Knows no policy by name, no evidence.

Source: EAR (draft-ietf-rats-ear) `ear.appraisal-policy-id`.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any

from shared.canonical import json_bytes, sha256
from shared.claims import Claim


class Identified:
    """A frozen policy that knows its id: it is asked for at every piece of evidence, and never changes."""

    @cached_property
    def digest(self) -> str:
        """Its `policy_digest`."""
        return policy_digest(self)


def policy_digest(*parts: object) -> str:
    """The id of a policy: "sha-256:" and the digest over the canonical JSON of its parts (policies, rules; dataclasses or claims)."""
    return f"sha-256:{sha256(json_bytes([_plain(part) for part in parts])).hex()}"


def _plain(part: object) -> Any:
    if isinstance(part, Claim):
        return part.model_dump(mode="json")
    if is_dataclass(part) and not isinstance(part, type):
        return {entry.name: _plain(getattr(part, entry.name)) for entry in fields(part)}
    if isinstance(part, (set, frozenset)):
        return sorted(part)
    return [_plain(item) for item in part] if isinstance(part, (list, tuple)) else part
