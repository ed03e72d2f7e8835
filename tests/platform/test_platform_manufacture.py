"""Measurement and manufacture: what is measured counts, secrets are private and kept, everything says EMULATED."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509

from gpu_agent.platform.__main__ import main
from gpu_agent.platform.files import Installation, read_private
from gpu_agent.platform.manufacture import ManufactureReport, cvm_role, manufacture
from gpu_agent.platform.measurement import installed_package, measure_code
from gpu_agent.platform.pki import make_maker
from gpu_agent.platform.quoting_enclave import QuotingEnclave
from shared.attestation.collateral import Collateral
from shared.attestation.collateral_store import CollateralStore
from shared.attestation.cpu_trust import CpuReference, CpuRoots
from shared.canonical import cbor_bytes, sha384
from shared.crypto.private_file import write_private
from shared.crypto.secret import Secret
from shared.errors import ConfigurationError, EmulationWarning

AT = 1_790_000_000.0


def code(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def device(directory: Path, gpu: str) -> None:
    (directory / "devices" / gpu).mkdir(parents=True, exist_ok=True)


def make(directory: Path, *cvms: str) -> ManufactureReport:
    with pytest.warns(EmulationWarning):
        return manufacture(directory, ["gpu-0"], cvms or ("orchestrator", "holder-north"), make_device=device, at=AT)


def test_measurement_is_the_documented_digest(tmp_path: Path) -> None:
    tree = code(tmp_path / "pkg", a="1", sub__b="2")
    expected = sha384(cbor_bytes(["gput/mrtd/1", [["pkg/a", sha384(b"1")], ["pkg/sub/b", sha384(b"2")]]]))
    assert measure_code([tree]) == expected


def test_every_file_and_name_counts_and_caches_do_not(tmp_path: Path) -> None:
    tree = code(tmp_path / "pkg", a="1", sub__b="2")
    first = measure_code([tree])
    (tree / "__pycache__").mkdir()
    (tree / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"x")
    assert measure_code([tree]) == first
    seen = {first}
    for change in ({"a": "2"}, {"sub__b": "3"}, {"c": ""}, {"sub__template.html": "x"}):
        code(tree, **change)
        seen.add(measure_code([tree]))
    (tree / "c").rename(tree / "d")
    seen.add(measure_code([tree]))
    assert len(seen) == 6
    with pytest.raises(ConfigurationError):
        measure_code([tree, tree])
    for nothing in ([], [tmp_path / "absent"], [tmp_path / "pkg" / "a"]):
        with pytest.raises(ConfigurationError):
            measure_code(nothing)


def test_roles_measure_different_code_and_names_are_strict() -> None:
    shared, orchestrator = installed_package("shared"), installed_package("orchestrator")
    assert measure_code([shared, orchestrator]) != measure_code([shared, installed_package("data_holder")])
    assert [cvm_role(name) for name in ("orchestrator", "orchestrator-b", "holder-x")] == [
        "orchestrator",
        "orchestrator",
        "data_holder",
    ]
    for bad in ("holder", "platform", "../orchestrator", "holder-X", ""):
        with pytest.raises(ConfigurationError):
            cvm_role(bad)
    with pytest.raises(ConfigurationError):
        installed_package("no_such_package")


def test_an_installation_is_complete_private_and_emulated_by_name(tmp_path: Path) -> None:
    report = make(tmp_path)
    place = Installation(tmp_path)
    assert (report.gpus, report.cvms) == (("gpu-0",), ("holder-north", "orchestrator"))
    maker = [place.maker / f"{name}.pem" for name in ("root", "authority", "signer")]
    tokens = [place.token("orchestrator"), place.token("holder-north")]
    for path in (place.pck_key, place.secret, place.mux_key, *tokens, *maker):
        assert path.stat().st_mode & 0o777 == 0o600
    roots = CpuRoots.load(place.cpu_roots)
    assert set(roots.sets.values()) == {"EMULATED"}
    for certificate in x509.load_pem_x509_certificates(place.pck_chain.read_bytes()):
        assert "EMULATED" in certificate.subject.rfc4514_string()
        assert "Intel" not in certificate.subject.rfc4514_string()
    reference = CpuReference.load(place.reference)
    assert [profile.mr_td for profile in reference.profiles("orchestrator")] == [report.mr_td["orchestrator"]]
    holders = reference.profiles("data_holder")
    assert {profile.mr_td for profile in holders} == {report.mr_td["data_holder"]}
    assert len({profile.registers for profile in holders}) == 2, "approved by hand, or by policy"
    assert all(None not in profile.registers[:3] and profile.registers[3] is None for profile in holders)
    CollateralStore.load(place.collateral_cache, roots.certificates)
    assert report.mr_td["orchestrator"] != report.mr_td["data_holder"]
    assert place.token("orchestrator").read_bytes() != place.token("holder-north").read_bytes()


def test_manufacture_again_keeps_secrets_and_adds(tmp_path: Path) -> None:
    make(tmp_path)
    place = Installation(tmp_path)
    kept = [
        place.pck_key, place.pck_chain, place.cpu_roots, place.secret, place.mux_key, place.token("orchestrator"),
        place.collateral, *place.maker.iterdir(),
    ]  # fmt: skip
    before = [path.read_bytes() for path in kept]
    value = json.loads(place.reference.read_bytes())
    value["gpu"] = {"measurements": {"driver": "00"}}
    value["cvms"]["orchestrator"][0]["mr_td"] = "00" * 48
    place.reference.write_text(json.dumps(value))
    report = make(tmp_path, "holder-south")
    assert [path.read_bytes() for path in kept] == before
    assert report.made == ("token of holder-south",)
    assert set(report.cvms) == {"orchestrator", "holder-north", "holder-south"}
    after = json.loads(place.reference.read_bytes())
    assert after["gpu"] == {"measurements": {"driver": "00"}}
    assert [profile["mr_td"] for profile in after["cvms"]["orchestrator"]] == [report.mr_td["orchestrator"]]


@pytest.mark.parametrize("lost", ["signer.pem", "root.pem", ""])
def test_a_machine_without_its_makers_keys_is_left_as_it_is(tmp_path: Path, lost: str) -> None:
    """The keys lie elsewhere, as they may: another maker's machine would be trusted by nobody who has these roots."""
    make(tmp_path)
    place = Installation(tmp_path)
    for path in [place.maker / lost] if lost else [*place.maker.iterdir()]:
        path.unlink()
    kept = [place.pck_key, place.pck_chain, place.cpu_roots, place.collateral]
    before = [path.read_bytes() for path in kept]
    with pytest.raises(ConfigurationError, match=r"whose key .* is not here") as refused:
        make(tmp_path)
    assert (refused.value.code, "bring the folder maker/" in refused.value.remedy) == ("installation-file", True)
    assert [path.read_bytes() for path in kept] == before


def test_an_interrupted_manufacture_is_finished_by_the_next(tmp_path: Path) -> None:
    make(tmp_path)
    place = Installation(tmp_path)
    place.pck_key.unlink()  # the last to be made
    assert make(tmp_path).made == ("CPU roots and quoting keys", "collateral")
    root = x509.load_pem_x509_certificate(place.cpu_roots.read_bytes())
    chain = x509.load_pem_x509_certificates(place.pck_chain.read_bytes())
    assert chain[2] == root
    CollateralStore.load(place.collateral_cache, CpuRoots.load(place.cpu_roots).certificates)


def test_collateral_is_renewed_when_half_its_time_is_gone(tmp_path: Path) -> None:
    """And never shorter than that, so that a running installation does not lose its word under its feet."""
    make(tmp_path)
    place = Installation(tmp_path)
    first = place.collateral.read_bytes()
    for days, renewed in ((0, False), (180, False), (184, True), (185, False), (400, True)):
        before = place.collateral.read_bytes()
        with pytest.warns(EmulationWarning):
            report = manufacture(tmp_path, [], ["orchestrator"], make_device=device, at=AT + days * 86_400)
        assert report.made == (("collateral",) if renewed else ())
        assert (place.collateral.read_bytes() != before) is renewed
    assert Collateral.parse(place.collateral.read_bytes()).fingerprint != Collateral.parse(first).fingerprint
    for damage in (b"", b"{}"):
        place.collateral.write_bytes(damage)
        assert make(tmp_path).made == ("collateral",)


def test_damaged_and_open_files_are_refused(tmp_path: Path) -> None:
    make(tmp_path)
    place = Installation(tmp_path)
    place.secret.chmod(0o644)
    with pytest.raises(ConfigurationError):
        read_private(place.secret, "the secret")
    with pytest.raises(ConfigurationError):
        read_private(tmp_path / "absent", "the secret")
    with pytest.raises(FileExistsError):
        write_private(place.token("orchestrator"), b"other")
    assert not list(place.token("orchestrator").parent.glob(".*"))
    certificates = place.maker / "certificates.pem"
    whole = certificates.read_bytes()
    for damage in (b"", b"no certificate", whole[: len(whole) // 3]):
        certificates.write_bytes(damage)
        with pytest.raises(ConfigurationError), pytest.warns(EmulationWarning):
            manufacture(tmp_path, [], ["orchestrator"], make_device=device, at=AT)
    certificates.write_bytes(whole)
    place.reference.write_text("[]")
    with pytest.raises(ConfigurationError), pytest.warns(EmulationWarning):
        manufacture(tmp_path, [], ["orchestrator"], make_device=device, at=AT)
    with pytest.raises(ConfigurationError), pytest.warns(EmulationWarning):
        manufacture(tmp_path, ["../gpu"], ["orchestrator"], make_device=device, at=AT)


def test_the_enclave_says_that_it_is_emulated_when_built() -> None:
    maker = make_maker("t", AT)
    keys = maker.machine(AT)
    with pytest.warns(EmulationWarning):
        QuotingEnclave(keys, Secret(bytes(32)))
    assert not [word for word in ("PRIVATE", "PrivateKey") if word in repr(keys) + repr(maker)]
    with pytest.warns(EmulationWarning), pytest.raises(ConfigurationError):
        QuotingEnclave(keys, Secret(b"short"))
    with pytest.warns(EmulationWarning), pytest.raises(ConfigurationError):
        QuotingEnclave(replace(keys, pck_key=b"no key"), Secret(bytes(32)))


def test_the_command_makes_a_whole_installation_and_says_what(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "manufacture",
        "--dir",
        str(tmp_path / "made"),
        "--gpus",
        "gpu-0,gpu-1",
        "--cvms",
        "orchestrator,holder-a",
    ]
    with pytest.warns(EmulationWarning):
        assert main(arguments) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["gpus"], first["backend"]) == (["gpu-0", "gpu-1"], "EMULATED")
    with pytest.warns(EmulationWarning):
        assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out) == {**first, "made": []}
    assert set(json.loads((tmp_path / "made" / "trust" / "reference.json").read_bytes())) == {"cvms"}
    assert len(list((tmp_path / "made" / "trust" / "rim").glob("NV_GPU_*.xml"))) == 2
    assert not list((tmp_path / "made" / "platform").rglob("*root*")), "serving needs no key of the maker"
    with pytest.warns(EmulationWarning):
        assert main([*arguments[:-1], "stranger"]) == 2
    assert "orchestrator-X" in capsys.readouterr().err


def test_a_folder_that_cannot_be_made_is_named_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "made"
    with pytest.warns(EmulationWarning):
        assert main(["manufacture", "--dir", str(folder), "--cvms", "orchestrator"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.splitlines()[0]) == ("", f"error: {folder}: Not a directory")
    assert said.err.splitlines()[1].startswith("remedy: ")
