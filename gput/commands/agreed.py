"""The manifest that a command was named, refused with all its faults before anything is sent. Knows no service."""

from __future__ import annotations

from pathlib import Path

from gput.files import content
from gput.output import say
from shared.claims.accountant import privacy_findings
from shared.claims.faults import ManifestRefused, judged
from shared.claims.manifest import Manifest
from shared.claims.policy_lint import lint_manifest


def agreed_manifest(path: Path) -> Manifest:
    """The manifest in a file; policies in vain and privacy that cannot hold are refused before anything is sent; doubts are said."""
    manifest = judged(content(path, "no-manifest"), f"{path}: ")
    lint = lint_manifest(manifest)
    errors = [*privacy_findings(manifest), *lint.errors]
    if errors:
        raise ManifestRefused(errors, f"{path}: ")
    for finding in lint.warnings:
        say(f"warning: {finding.field}: {finding.reason}. {finding.remedy} [{finding.code}]")
    return manifest
