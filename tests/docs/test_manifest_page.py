"""The manifest's page names every field that is not written when it is unset: who writes it gets other bytes, and another digest."""

from __future__ import annotations

import re

from shared.claims import Grown
from shared.claims.manifest import EvidencePolicy, Manifest, Validation
from shared.wire.visit import Approval
from tests.docs.extract import ROOT


def test_the_page_names_the_fields_that_are_absent_when_unset() -> None:
    text = (ROOT / "docs" / "manifest.md").read_text()
    [paragraph] = [part for part in text.split("\n\n") if "absent when unset" in part]
    named = set(re.findall(r"`(\w+)`", paragraph))
    for model in (Manifest, EvidencePolicy, Validation, Approval):
        assert set(model.later) <= named, model.__name__


def test_no_other_part_of_a_manifest_has_such_fields() -> None:
    schemas = Manifest.model_json_schema()["$defs"].keys()
    grown = {kind.__name__ for kind in Grown.__subclasses__() if kind.later}
    assert grown & schemas == {"EvidencePolicy", "Validation"}
