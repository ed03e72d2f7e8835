"""SEV-SNP policy and trust folder: each rule alone decides, profiles match as a whole, a damaged folder is one sentence at start."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID
from pydantic import ValidationError

from shared.attestation.cpu_trust import CpuPolicy
from shared.attestation.results import Check, CheckStatus
from shared.attestation.snp_verifier import (
    Expectation,
    SnpEndorsements,
    SnpPolicy,
    SnpProfile,
    SnpRoots,
    SnpTrust,
    examine_snp_evidence,
)
from shared.claims.manifest import EvidencePolicy
from shared.claims.snp_rules import ANY_SNP, SnpRules
from shared.errors import ConfigurationError
from tests.adversary.rows import attack
from tests.attestation.snp_world import AGREED, AT, CHIP, MEASUREMENT, authority, body, crl, good_chip, platform, signed

MASK = 2
VLEK_BITS = 1 << 2


def failures(rules: SnpPolicy, kind: str = "VCEK", agreed: SnpRules = ANY_SNP, **changes: Any) -> set[str]:
    """Codes of what stands against a report of the good chip under this policy of the verifier's, and what the parties agreed on."""
    leaf = good_chip("Milan", kind)
    machines = changes.pop("machines", frozenset())
    if kind == "VLEK":
        changes = {"key_info": VLEK_BITS, "chip_id": bytes(64), **changes}
    found = examine_snp_evidence(
        signed(body(**changes), leaf.key), SnpEndorsements((leaf.leaf,)), trust=platform().trust(rules),
        agreed=replace(AGREED, snp=agreed), expected=Expectation(machines=machines), at=AT,
    )  # fmt: skip
    return {check.code for check in found.examination if check.status is CheckStatus.FAIL}


@pytest.mark.parametrize(
    ("policy", "changes", "code"),
    [
        ({"products": ("Genoa", "Turin")}, {}, "snp-product-policy"),
        ({"signing_keys": ("VLEK",)}, {}, "snp-endorser"),
        ({"signing_keys": ("VCEK",)}, {"kind": "VLEK"}, "snp-endorser"),
        ({"csp_ids": ("CN=other",)}, {"kind": "VLEK"}, "snp-csp"),
        ({"machines": ("00" * 64,)}, {}, "cvm-platform"),
        ({"machines": (CHIP["Milan"].hex(),)}, {"kind": "VLEK"}, "cvm-platform"),
        ({"machines": (CHIP["Milan"].hex(),)}, {"machines": frozenset({"00" * 64})}, "cvm-platform"),
        ({"max_vmpl": 0}, {"vmpl": 1}, "snp-vmpl"),
        ({"allow_smt": False}, {}, "snp-guest-policy"),
        ({"minimum_tcb": {"Milan": {"microcode": 220}}}, {}, "snp-minimum-tcb"),
        ({"minimum_tcb": {"Milan": {"bootloader": 5}}}, {}, "snp-minimum-tcb"),
        ({"minimum_tcb": {"Genoa": {"bootloader": 0}}}, {}, "snp-minimum-tcb"),
        ({"minimum_tcb": {"Milan": {"microcode": 219}}}, {"at": {0x1F0: bytes([4, 0, 0, 0, 0, 0, 24, 218])}}, "snp-minimum-tcb"),
        ({"id_key_digests": ("ab" * 48,)}, {}, "snp-identity-key"),
        ({"author_key_digests": ("ab" * 48,)}, {"author_key": b"\xab" * 48}, "snp-identity-key"),
    ],
)  # fmt: skip
def test_one_rule_alone_refuses(policy: dict[str, Any], changes: dict[str, Any], code: str) -> None:
    assert failures(SnpPolicy(**policy), **changes) == {code}
    if (
        policy.keys() <= SnpRules.model_fields.keys()
    ):  # also where it is the parties' rule, and this verifier's own has nothing against it
        assert failures(SnpPolicy(), agreed=SnpRules(**policy), **changes) == {code}


@pytest.mark.parametrize(
    ("policy", "changes"),
    [
        ({}, {}),
        ({"max_vmpl": 3}, {"vmpl": 3}),
        ({"allow_migration_agent": True}, {"policy": 0x3001F | 1 << 18}),
        ({"allow_cxl": True}, {"policy": 0x3001F | 1 << 21}),
        ({"allow_smt": False}, {"policy": 0x2001F}),
        ({"csp_ids": ("CN=cloud.test.x",)}, {"kind": "VLEK"}),
        ({"machines": (CHIP["Milan"].hex(),)}, {}),
        ({"machines": (CHIP["Milan"].hex(),)}, {"key_info": MASK, "chip_id": bytes(64)}),
        ({"minimum_tcb": {"Milan": {"bootloader": 4, "snp": 24, "microcode": 219, "fmc": 9}, "Genoa": {"tee": 9}}}, {}),
        ({"minimum_tcb": {"Milan": {}, "Genoa": {"tee": 9}}}, {}),
        ({"id_key_digests": ("ab" * 48,)}, {"id_key": b"\xab" * 48}),
        ({"author_key_digests": ("ab" * 48,)}, {"author_key": b"\xab" * 48, "key_info": 1}),
    ],
)
def test_what_the_policy_names_passes(policy: dict[str, Any], changes: dict[str, Any]) -> None:
    assert failures(SnpPolicy(**policy), agreed=_shared(policy), **changes) == set()


@pytest.mark.parametrize("level", [2, 3])
def test_a_guest_beneath_an_svsm_is_refused_with_the_way_to_mean_it(level: int) -> None:
    """It can ask for its own level only, so "ask at another" would be no remedy; the default stays as it is."""
    report = signed(body(vmpl=level), good_chip().key)

    def judged(rules: SnpPolicy) -> Check:
        found = examine_snp_evidence(
            report, SnpEndorsements((good_chip().leaf,)), trust=platform().trust(rules), agreed=AGREED, at=AT
        )
        return found.examination.find("vmpl")

    refused = judged(SnpPolicy())
    assert (refused.status, refused.code, refused.expected) == (CheckStatus.FAIL, "snp-vmpl", "at most 1")
    assert "max_vmpl" in refused.remedy
    assert judged(SnpPolicy(max_vmpl=level)).status is CheckStatus.PASS
    assert judged(SnpPolicy(max_vmpl=level - 1)).status is CheckStatus.FAIL


def _shared(policy: dict[str, Any]) -> SnpRules:
    return SnpRules(**{name: value for name, value in policy.items() if name in SnpRules.model_fields})


@pytest.mark.parametrize("bit", [18, 21], ids=["migration agent", "CXL"])
def test_what_one_of_the_two_allows_the_other_still_refuses(bit: int) -> None:
    lax: dict[str, Any] = {"allow_migration_agent": True, "allow_cxl": True}
    policy = 0x3001F | 1 << bit
    assert failures(SnpPolicy(**lax), policy=policy) == {"snp-guest-policy"}
    assert failures(SnpPolicy(), agreed=SnpRules(**lax), policy=policy) == {"snp-guest-policy"}


def test_a_manifests_rules_come_to_the_verifier() -> None:
    """From the signed document to the policy that evidence is judged by; a manifest that says nothing keeps the bytes it had."""
    asked = EvidencePolicy(roots=("AMD",), snp=SnpRules(machines=("00" * 63 + "01",)))
    policy = CpuPolicy.of(EvidencePolicy.model_validate_json(asked.model_dump_json()), allow_emulated=False)
    assert policy.snp.machines == ("00" * 63 + "01",)
    assert policy.digest != CpuPolicy.of(EvidencePolicy(roots=("AMD",)), allow_emulated=False).digest
    assert "snp" not in EvidencePolicy(roots=("AMD",)).model_dump()


@attack("H19", any="stopped: debuggable guests are refused")
def test_debug_is_refused_whatever_the_policy() -> None:
    assert "allow_debug" not in SnpPolicy.model_fields
    assert failures(SnpPolicy(), policy=0xB0000) == {"cvm-debug"}


@pytest.mark.parametrize(
    "bad",
    [{"products": ()}, {"products": ("Rome",)}, {"max_vmpl": 4}, {"allow_debug": True}, {"machines": ("xyz",)}, {"signing_keys": ()},
     {"minimum_tcb": {"Milan": {"microcode": 256}}}, {"minimum_tcb": {"Milan": {"ucode": 1}}}],
)  # fmt: skip
def test_a_policy_is_typed(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        SnpPolicy(**bad)


# ---------------------------------------------------------------- profiles


def profile_code(profiles: tuple[SnpProfile, ...], **changes: Any) -> tuple[str, str]:
    leaf = good_chip()
    found = examine_snp_evidence(
        signed(body(**changes), leaf.key), SnpEndorsements((leaf.leaf,)), trust=platform().trust(), agreed=AGREED,
        expected=Expectation(profiles=profiles), at=AT,
    )  # fmt: skip
    check = found.examination.find("measurements")
    return check.code, check.expected


def test_a_profile_matches_as_a_whole_or_not_at_all() -> None:
    first = SnpProfile(measurement=MEASUREMENT.hex(), host_data="aa" * 32, guest_svn=7, id_key_digest="cc" * 48)
    second = SnpProfile(measurement="22" * 48, host_data="bb" * 32)
    good = {"host_data": b"\xaa" * 32, "id_key": b"\xcc" * 48}
    assert profile_code((first, second), **good) == ("", "")
    code, expected = profile_code((first, second), **{**good, "host_data": b"\xbb" * 32})
    assert (code, expected) == ("cvm-measurement", f"host_data {'aa' * 32}")
    assert profile_code((first,), **good, guest_svn=6) == ("cvm-measurement", "guest_svn 7")
    assert profile_code((second,), **good)[0] == "cvm-measurement"
    assert profile_code((), **good) == ("cvm-measurement", "no reference value is configured")


def test_agreed_measurements_replace_the_list_and_keep_what_is_known_of_each() -> None:
    trust = platform().trust(host_data="aa" * 32)
    (kept,) = trust.accepted("data_holder", (MEASUREMENT.hex(),))
    assert kept.host_data == "aa" * 32
    (fresh,) = trust.accepted("data_holder", ("22" * 48,))
    assert fresh == SnpProfile(measurement="22" * 48)
    assert trust.accepted("data_holder", ()) == trust.profiles["data_holder"]


# ------------------------------------------------------------ trust folder


def folder(tmp_path: Path, snp: Any = None, roots: bytes | None = None) -> Path:
    (tmp_path / "snp-roots.pem").write_bytes(roots or platform().pem(platform().ask, platform().asvk))
    reference = {"cvms": {}, "gpu": {}} | ({} if snp is None else {"snp": snp})
    (tmp_path / "reference.json").write_text(json.dumps(reference))
    return tmp_path


def test_a_trust_folder_is_read(tmp_path: Path) -> None:
    assert SnpTrust.load(tmp_path) is None
    part = {
        "profiles": {"data_holder": [{"measurement": "11" * 48}, {"measurement": "22" * 48, "guest_svn": 3}],
                     "orchestrator": {"measurement": "33" * 48, "host_data": "44" * 32}},
        "policy": {"products": ["Genoa"], "minimum_tcb": {"Genoa": {"microcode": 84}}, "machines": [CHIP["Genoa"].hex()]},
    }  # fmt: skip
    place = folder(tmp_path, part)
    (place / "snp-crls").mkdir()
    (place / "snp-crls" / "EMULATED.crl").write_bytes(crl())
    trust = SnpTrust.load(place)
    assert trust is not None
    assert [profile.guest_svn for profile in trust.profiles["data_holder"]] == [0, 3]
    assert trust.policy.minimum_tcb["Genoa"].microcode == 84
    assert (set(trust.roots.sets.values()), len(trust.roots.intermediates), len(trust.lists())) == ({"EMULATED"}, 2, 1)
    assert SnpTrust.load(folder(tmp_path)).policy == SnpPolicy()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "part",
    [[], {"profile": {}}, {"profiles": {"gpu": {"measurement": "11" * 48}}}, {"profiles": {"orchestrator": {"mr_td": "11" * 48}}},
     {"policy": {"allow_debug": True}}, {"profiles": 3}],
)  # fmt: skip
def test_damaged_reference_values_are_said_at_start(tmp_path: Path, part: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        SnpTrust.load(folder(tmp_path, part))
    assert (caught.value.code, bool(caught.value.remedy)) == ("bad-reference", True)


def test_damaged_roots_and_lists_are_said_at_start(tmp_path: Path) -> None:
    named_otherwise = authority("ARK-EMULATED", "ark")
    foreign = named_otherwise.certificate.public_bytes(serialization.Encoding.PEM).replace(b"A", b"B", 40)
    for roots in (b"\0", b"none", foreign, platform().pem()[:-900]):
        with pytest.raises(ConfigurationError) as caught:
            SnpRoots.load(roots)
        assert caught.value.code == "bad-roots"
    only_issuer = platform().ask.certificate.public_bytes(serialization.Encoding.PEM)
    with pytest.raises(ConfigurationError):
        SnpRoots.load(only_issuer)
    with pytest.raises(ConfigurationError):
        SnpRoots.load(tmp_path / "absent.pem")
    place = folder(tmp_path)
    (place / "snp-crls").mkdir()
    (place / "snp-crls" / "x.crl").write_bytes(b"no list")
    with pytest.raises(ConfigurationError) as caught:
        SnpTrust.load(place)
    assert caught.value.code == "bad-crl"


def test_a_root_that_is_neither_amds_nor_named_emulated_is_no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.attestation.snp_world.name", _plain_name)
    plain = authority("ARK-Milan", "ark")
    with pytest.raises(ConfigurationError) as caught:
        SnpRoots.load(plain.certificate.public_bytes(serialization.Encoding.PEM))
    assert "neither AMD's nor named" in caught.value.detail


def _plain_name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
