"""What a policy says of each field of a manifest: a rule that can deny it, or the reason why no policy need look at it.

A field without either would be approved by every policy that never mentions it. And faults of a policy's file, said at the start.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from data_holder.policy import Policy, load_policy
from data_holder.policy_rules import OWNERS, UNKNOWN_OWNER, evaluate
from shared.claims.archive import open_archive
from shared.claims.manifest import EvidencePolicy, GpuRules, Manifest, OutputPolicy, RosterEntry
from shared.claims.tdx_policy import TdxPolicy
from shared.claims.training import TrainingOptions
from shared.errors import ConfigurationError
from tests.data_holder.holder_world import ARCHIVE, make_manifest
from tests.data_holder.test_holder_policy import GOOD, privacy, verdict, with_rules

OLD = EvidencePolicy(roots=("EMULATED",), max_age_s=86_401)
EMULATED = EvidencePolicy(roots=("EMULATED",))
MEASURED = "ab" * 48


def rostered(holder: str, evidence: EvidencePolicy) -> tuple[RosterEntry, ...]:
    """The roster, where something else is asked of one holder."""
    entries = make_manifest("ef" * 32).roster
    return tuple(one.model_copy(update={"evidence": evidence if one.holder == holder else EMULATED}) for one in entries)


RULED: dict[str, tuple[str, Any, str]] = {
    "name": (with_rules('[session]\nnames = ["trial-*"]'), "study-1", "session.names"),
    "program": (GOOD.replace('"arithmetic", ', ""), make_manifest("ef" * 32).program, "programs"),
    "continuation": (GOOD, "remaining", "session.continuation"),
    "training": (
        GOOD.replace("[limits]", "[limits]\nmax_records_per_visit = 20"), TrainingOptions(batch_size=5, seed=3),
        "limits.max_records_per_visit",
    ),
    "roster": (with_rules("[session]\nmin_parties = 3"), rostered("south", EMULATED), "session.min_parties"),
    "gpu_evidence": (GOOD, OLD, "evidence.max_age_s"),
    "orchestrator_evidence": (GOOD, OLD, "evidence.max_age_s"),
    "rounds": (GOOD, 6, "limits.max_rounds"),
    "steps_per_visit": (GOOD.replace("[limits]", "[limits]\nmax_steps_per_visit = 5"), 6, "limits.max_steps_per_visit"),
    "travel_mode": (GOOD, "paper", "session.travel_modes"),
    "privacy_floor": (GOOD, 7, "limits.min_privacy_floor"),
    "loss_decimals": (GOOD.replace("[limits]", "[limits]\nloss_decimals = 4"), 5, "limits.loss_decimals"),
    "privacy": (GOOD.replace("[limits]", "[limits]\nmax_epsilon = 3.0"), privacy(3.1), "limits.max_epsilon"),
    "quorum": (with_rules("[session]\nmin_parties = 2"), 1, "session.min_parties"),
    "recovery_shares": (GOOD, 1, "session.min_recovery_shares"),
    "output": (GOOD, OutputPolicy(release_to=("holders",)), "output.release_to"),
}  # fmt: skip
"""Field -> a policy, a value of the field, and the rule that denies this."""
NOT_RULED = {
    "format": "there is one",
    "gpus": "there is one",
    "verification": "there is one",
    "initial_weights": "the owner chooses the program's own weights as well; what may run on them is ruled on",
    "predecessor": "checked against that session's own manifest before any policy is asked (Predecessors.check)",
    "visit_order": "who is visited first shows nobody more",
    "record_order": "which records are drawn first; how many is ruled on",
    "buffer_bytes": "room in the GPU; how many records come is ruled on",
    "collect": "the mixture lies in the GPU, where no holder reads in the travel modes that a manifest may say it with",
    "accumulate": "as collect",
    "validation": "the owner's own records",
    "acceptance": "what becomes part of the model, by measures that nobody is told",
    "lease_s": "for how long a holder may keep the GPU from the others",
}


def test_each_field_of_a_manifest_is_ruled_on_or_has_a_reason_why_not() -> None:
    assert not set(RULED) & set(NOT_RULED)
    assert set(RULED) | set(NOT_RULED) == set(Manifest.model_fields)


@pytest.mark.parametrize("field", RULED)
def test_its_rule_denies_it(field: str) -> None:
    policy, value, rule = RULED[field]
    assert verdict(policy, **{field: value}) == [rule]


EVIDENCE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "roots": ("evidence.allow_emulated", GOOD.replace("allow_emulated = true", ""), {"roots": ("EMULATED",)}),
    "measurements": ("evidence.orchestrator_measurements", GOOD, {"measurements": (MEASURED,)}),
    "max_age_s": ("evidence.max_age_s", GOOD, {"max_age_s": 86_401}),
    "tdx": ("evidence.tdx.service_tds", GOOD, {"tdx": TdxPolicy(service_tds=(MEASURED,))}),
    "snp": ("evidence.snp.allow_cxl", GOOD, {"snp": {"allow_cxl": True}}),
}


@pytest.mark.parametrize("field", sorted(set(EvidencePolicy.model_fields) - {"gpu"}))
def test_each_field_of_what_the_orchestrator_must_prove_is_ruled_on(field: str) -> None:
    """All but `gpu`, which a manifest may say of the GPU alone (below)."""
    rule, policy, said = EVIDENCE[field]
    others = EvidencePolicy(roots=("NVIDIA",)) if field == "roots" else EMULATED
    roster = rostered("south", EvidencePolicy(roots=("INTEL",))) if field == "roots" else rostered("south", EMULATED)
    asked = EvidencePolicy.model_validate({"roots": ("EMULATED",), **said})
    assert verdict(policy, orchestrator_evidence=asked, gpu_evidence=others, roster=roster) == [rule]


def test_the_rules_of_a_gpu_are_ruled_on_each() -> None:
    lax = {
        "modes": ("ppcie",), "devices": ("00" * 8,), "firmware_without_id": True, "expired_reference_values": True,
        "revocation": "if-stapled", "certificate_hold": True,
    }  # fmt: skip
    assert set(lax) == set(GpuRules.model_fields)
    policy = GOOD + f'[evidence.gpu]\ndevices = ["{"11" * 8}"]\nrevocation = "required"'
    denied = verdict(policy, gpu_evidence=EvidencePolicy(roots=("EMULATED",), gpu=GpuRules.model_validate(lax)))
    assert set(denied) == {f"evidence.gpu.{name}" for name in lax}


@pytest.mark.parametrize(
    ("policy", "manifest", "denies"),
    [
        (with_rules('[session]\ntravel_modes = ["paper"]'), {"travel_mode": "paper"}, []),
        (with_rules('[session]\ntravel_modes = ["direct"]'), {"travel_mode": "scoped"}, ["session.travel_modes"]),
        (GOOD, {"travel_mode": "direct"}, []),
        (GOOD + "max_age_s = 86401", {"orchestrator_evidence": OLD, "gpu_evidence": OLD}, []),
        (GOOD + "max_age_s = 3600", {}, ["evidence.max_age_s", "evidence.max_age_s"]),
        (GOOD, {"roster": rostered("south", OLD)}, ["evidence.max_age_s"]),
        (GOOD, {"roster": rostered("north", OLD)}, []),  # what others want of this holder
    ],
    ids=[
        "paper, as said", "another mode than said", "direct", "older, as said", "fresher than said", "another holder's", "its own",
    ],
)  # fmt: skip
def test_travel_modes_and_the_age_of_proofs(policy: str, manifest: dict[str, Any], denies: list[str]) -> None:
    assert verdict(policy, **manifest) == denies


SOUTH = "cd" * 32


@pytest.mark.parametrize(
    ("required", "ok"),
    [
        (["south"], True), ([f"south:{SOUTH}"], True), ([f"south:{'ce' * 32}"], False), ([f"west:{SOUTH}"], False),
        (["south", f"south:{SOUTH}"], True), ([f"north:{SOUTH}"], False),
    ],
)  # fmt: skip
def test_a_party_is_one_by_its_key_where_the_policy_says_so(required: list[str], ok: bool) -> None:
    """Whoever writes the orchestrator's list of keys could put anybody in the place of a name."""
    denied = verdict(with_rules(f"[session]\nrequired_parties = {json.dumps(required)}"))
    assert denied == ([] if ok else ["session.required_parties"])


@pytest.mark.parametrize("owner", ["aa" * 32, "bb" * 32, None])
def test_an_owner_is_one_of_those_that_are_named(owner: str | None) -> None:
    policy = Policy.model_validate(tomllib.loads(with_rules(f'[session]\nowners = ["{"aa" * 32}"]')))
    findings = evaluate(policy, make_manifest("ef" * 32), open_archive(ARCHIVE).manifest, "north", owner)
    denied = [(finding.rule, finding.got) for finding in findings if not finding.ok]
    expected = {"aa" * 32: [], "bb" * 32: [(OWNERS, f"key {'bb' * 32}")], None: [(OWNERS, UNKNOWN_OWNER)]}
    assert denied == expected[owner]


@pytest.mark.parametrize(
    "rule", ['owners = ["ada"]', 'required_parties = ["south:cd"]', 'required_parties = ["South"]']
)
def test_what_names_nobody_is_refused_at_the_start(tmp_path: Path, rule: str) -> None:
    (tmp_path / "policy.toml").write_text(with_rules(f"[session]\n{rule}"))
    with pytest.raises(ConfigurationError) as caught:
        load_policy(tmp_path / "policy.toml")
    assert caught.value.code == "policy-malformed"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[limits]\nmax_round = 5", "limits.max_round"),
        ("[limits]\nmax_rounds = 0", "limits.max_rounds"),
        ('[limits]\nmax_rounds = "many"', "limits.max_rounds"),
        ('[programs]\noperators = ["magic"]', "unknown operator groups magic"),
        ('[programs]\ndigests = ["abc"]', "programs.digests"),
        ('[output]\nrelease_to = ["everyone"]', "output.release_to"),
        ("limits = [", "not TOML"),
    ],
)
def test_lint_names_the_key(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=named) as caught:
        load_policy(path)
    assert caught.value.code == "policy-malformed"


def test_an_absent_policy_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load_policy(tmp_path / "none.toml")
    assert caught.value.code == "policy-unreadable"
