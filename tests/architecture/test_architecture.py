"""The rules that keep the code readable, as tests: door plates, sizes, light imports, pages made from code, no machine's paths."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from docs import security
from docs.generate import SETTINGS, main
from tests.conftest import COLLECTED

ROOT = Path(__file__).parents[2]
PACKAGES = ("shared", "orchestrator", "data_holder", "gpu_agent", "gput", "docs")
MAX_FILE_LINES, MAX_FUNCTION_LINES = 300, 40
# Lists, not behaviour: one line per column, or one class per command of the device.
LONG_LISTS = {
    "shared/wire/gpu.py",
    "orchestrator/migrations/versions/0001_initial.py",
}
COMMANDS_OWN = {"GPUT_HOLDER_URL", "GPUT_HOLDER_TOKEN"}
"""Variables of `gput party`, which only look like a holder's settings."""
MACHINE_PATHS = re.compile(rb"(?<![\w.}/-])/(?:work/|tmp/spec\b)")


@cache
def tracked() -> tuple[str, ...]:
    """Every file under version control."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return tuple(name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file())


def product() -> list[str]:
    """Every Python file that ships or makes pages."""
    found = [name for name in tracked() if name.endswith(".py") and name.split("/")[0] in PACKAGES]
    assert len(found) > 150  # the rules below are about something
    return found


@cache
def parsed(name: str) -> ast.Module:
    """A file's syntax tree, which several rules look at."""
    return ast.parse((ROOT / name).read_text())


def functions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Name and length in lines of each function, its docstring not counted."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0]
            says = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            docstring = (first.end_lineno or 0) - first.lineno + 1 if says else 0
            yield node.name, (node.end_lineno or 0) - node.lineno + 1 - docstring


def test_every_file_has_a_door_plate() -> None:
    bare = []
    for name in product():
        source = (ROOT / name).read_text()
        plate = ast.get_docstring(parsed(name))
        if source.strip() and (plate is None or not re.match(r'r?"""\S', source) or not plate.splitlines()[0].strip()):
            bare.append(name)
    assert not bare


def test_files_are_short() -> None:
    tests = [name for name in tracked() if name.startswith("tests/") and name.endswith(".py")]
    assert tests
    names = [name for name in (*product(), *tests) if name not in LONG_LISTS]
    lengths = {name: len((ROOT / name).read_text().splitlines()) for name in names}
    assert not {name: length for name, length in lengths.items() if length > MAX_FILE_LINES}


def test_functions_are_short() -> None:
    long = [
        f"{name}: {function} has {length} lines"
        for name in product()
        if name not in LONG_LISTS
        for function, length in functions(parsed(name))
        if length > MAX_FUNCTION_LINES
    ]
    assert not long


def test_what_a_verifier_mints_cannot_be_copied_with_changes() -> None:
    """`dataclasses.replace` carries every field over, also one that says who made it; an InitVar is kept nowhere."""
    mints = [
        (name, ast.unparse(node.annotation))
        for name in product()
        for node in ast.walk(parsed(name))
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "_mint"
    ]
    assert len(mints) > 10
    assert not [name for name, kind in mints if kind != "InitVar[object]"]


def test_the_length_of_a_function_is_measured_without_its_docstring() -> None:
    assert list(functions(ast.parse('def f():\n    """One.\n\n    Two.\n    """\n    return 1\n'))) == [("f", 2)]


def test_long_lists_still_exist() -> None:
    assert set(product()) >= LONG_LISTS


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("orchestrator.__main__", ("torch",)),
        ("data_holder.__main__", ("torch",)),
        ("gpu_agent.api", ("torch",)),
        ("gpu_agent.platform.api", ("torch",)),
        ("gput.client", ("torch",)),
        ("gput.receipt_worker", ("torch", "httpx2", "asyncio", "shared.attestation", "shared.wire", "typer")),
        ("gput.__main__", ("torch", "fastapi", "sqlalchemy")),
    ],
)
def test_imports_stay_light(module: str, forbidden: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([name for name in {forbidden!r} if name in sys.modules])"
    assert _python("-c", code) == "[]"


def test_help_imports_no_service_and_no_framework() -> None:
    code = """
import sys
from gput.__main__ import main
sys.argv = ["gput", "--help"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
heavy = ("torch", "numpy", "fastapi", "sqlalchemy", "orchestrator", "data_holder", "gpu_agent")
print([name for name in heavy if name in sys.modules])
"""
    *page, heavy = _python("-c", code).splitlines()
    assert any("session" in line for line in page)
    assert heavy == "[]"


def _python(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_no_file_names_a_machines_own_paths() -> None:
    named = [name for name in tracked() if MACHINE_PATHS.search((ROOT / name).read_bytes())]
    assert not named


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (b'open("/work' + b'/main/x")', True),
        (b"see /tmp" + b"/spec/a.md", True),
        (b"/v1/work" + b"/items, framework" + b"/work, /working/x", False),
    ],
)
def test_machine_paths_are_recognised(text: bytes, found: bool) -> None:
    assert bool(MACHINE_PATHS.search(text)) is found


def test_pages_made_from_code_are_up_to_date() -> None:
    assert main(check=True) == 0, "run: python -m docs.generate"


def test_the_page_of_attacks_is_up_to_date(request: pytest.FixtureRequest) -> None:
    """From what this run collected; where it collected only part of it, from a collection of its own."""
    marking, items = set(security.marking()), request.config.stash[COLLECTED]
    if marking <= {item.path for item in items}:
        made = security.page(item for item in items if item.path in marking)
        assert made == security.PAGE.read_text(), "run: python -m docs.security"
    else:
        _python("-m", "docs.security", "--check")


def test_every_setting_is_documented() -> None:
    page = (ROOT / "docs" / "operations.md").read_text()
    missing = [
        f"{settings.__name__}.{name}"
        for settings in SETTINGS
        for name in settings.model_fields
        if f"`{name}`" not in page
    ]
    assert not missing


def test_every_documented_setting_exists() -> None:
    """In tables, as variables and where a text says "the setting …"; in documentation, deployment files and what errors advise."""
    prefixes = {settings.model_config.get("env_prefix", ""): set(settings.model_fields) for settings in SETTINGS}
    known = set[str]().union(*prefixes.values())
    page = (ROOT / "docs" / "operations.md").read_text()
    tables = re.findall(r"<!-- made from code: (?:common|service)-settings -->(.*?)<!-- end -->", page, re.DOTALL)
    listed = re.findall(r"^\| `([a-z0-9_]+)` \|", "\n".join(tables), re.MULTILINE)
    assert len(listed) > 40
    assert set(listed) == known
    said = [
        name
        for name in tracked()
        if name.endswith((".md", ".py", ".yml", ".yaml", ".toml")) and not name.startswith("tests/")
    ]
    wrong = []
    for name in said:
        text = (ROOT / name).read_text()
        for prefix, fields in prefixes.items():
            wrong += [
                f"{name}: {prefix}{each}"
                for each in re.findall(prefix + r"([A-Z][A-Z0-9_]+)", text)
                if each.lower() not in fields
            ]
        wrong = [each for each in wrong if each.rpartition(" ")[2] not in COMMANDS_OWN]
        advised = re.findall(r"(?:by|in|Correct|correct) the setting `?([a-z]+_?[a-z_]*)", text)
        wrong += [f"{name}: the setting {each}" for each in advised if each not in known]
    assert not wrong


def test_every_setting_says_what_it_is_for() -> None:
    silent = [
        f"{settings.__name__}.{name}"
        for settings in SETTINGS
        for name, field in settings.model_fields.items()
        if not field.description
    ]
    assert not silent


def test_problem_codes_are_kebab_case() -> None:
    stated = [
        (name, code)
        for name in product()
        for code in re.findall(r'\bcode="([^"{}]*)"(?=\s*[,)])', (ROOT / name).read_text())
    ]
    assert len(stated) > 200
    assert not [found for found in stated if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", found[1])]
