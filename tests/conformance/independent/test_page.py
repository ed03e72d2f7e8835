"""docs/formats.md leaves nothing out: each label of the code, each field of a document, each field that is absent when unset."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from shared.claims import Grown
from shared.claims import receipt as receipts
from shared.claims import share as shares
from shared.claims import visit as visits
from shared.wire import attestation, copy, party_keys, recovery, spdm
from shared.wire import visit as wire

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "formats.md"
ROOMS = ("shared", "orchestrator", "data_holder", "gpu_agent", "gput")
LABEL = re.compile(r"gput(/|-[a-z]+/[0-9])")
NOT_ON_THE_PAGE = {
    "gput-bench/1": "format of a bench's result, which no party reads (gput/bench/result.py)",
    "gput/bench-share": "made and read by one bench alone, between two processes of its own (gput/local/travel/sharing.py)",
}
MODELS = (wire, recovery, attestation, party_keys, copy, visits, receipts, shares)


def part(title: str) -> str:
    """What stands on the page under a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1]


def rows(title: str) -> list[list[str]]:
    """Cells of the rows of that part's tables that begin with a word of code."""
    lines = [line for line in part(title).splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def words(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def constants(tree: ast.AST) -> Iterator[str]:
    """Texts and bytes of a module that are no docstrings, without zero bytes around them."""
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and id(node) not in said:
            if isinstance(node.value, str):
                yield node.value.strip("\x00")
            elif isinstance(node.value, bytes):
                yield node.value.decode("latin-1").strip("\x00")


@cache
def of_the_code() -> frozenset[str]:
    """All constants of all rooms."""
    files = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    return frozenset(found for path in files for found in constants(ast.parse(path.read_text())))


@cache
def labels() -> frozenset[str]:
    return frozenset(found for found in of_the_code() if LABEL.match(found))


@cache
def of_the_page() -> frozenset[str]:
    return frozenset(words(row[0])[0] for row in rows("Every label"))


def begins(constant: str) -> bool:
    """Whether the code puts a label together behind this, as `gput/asc/1 ROLE`."""
    return constant.endswith(("/", " "))


def test_each_label_of_the_code_stands_on_the_page() -> None:
    known = of_the_page() | NOT_ON_THE_PAGE.keys()
    missing = {
        found for found in labels() - known if not (begins(found) and any(name.startswith(found) for name in known))
    }
    assert not missing
    assert len(labels()) > 70


def test_each_label_of_the_page_stands_in_the_code_and_each_exception_too() -> None:
    begun = tuple(found for found in labels() if begins(found))
    known = of_the_page() | NOT_ON_THE_PAGE.keys()
    assert not {name for name in known - of_the_code() if not name.startswith(begun)}
    assert of_the_page().isdisjoint(NOT_ON_THE_PAGE)


def test_both_tables_name_the_same_labels_of_signatures() -> None:
    of_signatures = {words(row[0])[0] for row in rows("Every label") if row[1].startswith("label of a signature")}
    assert {words(row[0])[0] for row in rows("Labelled")} == of_signatures


@pytest.mark.parametrize("row", rows("Documents that are signed or quoted"), ids=lambda row: row[0])
def test_the_page_names_each_field_of_a_document(row: list[str]) -> None:
    (name,) = words(row[0])
    if name == "Manifest":
        assert "manifest.md" in row[1]
        return
    (model,) = {vars(module)[name] for module in MODELS if name in vars(module)}
    assert words(row[1]) == list(model.model_fields)


def grown(kind: type[Grown] = Grown) -> Iterator[type[Grown]]:
    for child in kind.__subclasses__():
        yield child
        yield from grown(child)


def test_the_page_names_each_field_that_is_absent_when_unset() -> None:
    for path in sorted((ROOT / "shared").rglob("*.py")):
        if "(Grown)" in path.read_text():
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    later = {kind.__name__: list(kind.later) for kind in grown() if kind.later and kind.__module__.startswith(ROOMS)}
    assert {words(row[0])[0]: words(row[1]) for row in rows("Canonical bytes")} == later


@pytest.mark.parametrize("name", ["page_signed", "page_sealed", "page_orders"])
def test_what_is_written_from_the_page_imports_nothing_of_the_product(name: str) -> None:
    tree = ast.parse((Path(__file__).parent / f"{name}.py").read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    allowed = {f"tests.conformance.independent.{other}" for other in ("page_signed", "page_sealed")}
    assert not {module for module in imported - allowed if module.split(".")[0] in (*ROOMS, "tests")}


def test_the_pages_first_spdm_messages_are_the_codes() -> None:
    shown = [word for row in part("SPDM").splitlines() if row.startswith("| ") for word in words(row)]
    said = ("GET_VERSION", "VERSION", "GET_CAPABILITIES", "CAPABILITIES", "NEGOTIATE_ALGORITHMS", "ALGORITHMS")
    assert shown == [getattr(spdm, f"{name}_MESSAGE").hex() for name in said]
