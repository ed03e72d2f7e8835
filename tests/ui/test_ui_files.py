"""The pages' files: headers, types, what is not there, the rules of the code, the wheel. No browser."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx2
import pytest

from data_holder.ui import router as holder_page
from orchestrator.ui import router as dashboard
from shared.service.app import add_routes, create_service_app
from shared.service.settings import ServiceSettings
from shared.service.ui import COMMON, FRAME, TYPES, Frame, pages

ROOT = Path(__file__).parents[2]
FOLDERS = {"orchestrator": ROOT / "orchestrator/ui/static", "holder": ROOT / "data_holder/ui/static"}
PAGES = {"orchestrator": dashboard, "holder": holder_page}
FILES = [FRAME, *(path for folder in (COMMON, *FOLDERS.values()) for path in sorted(folder.iterdir()))]
SCRIPTS = [path for path in FILES if path.suffix == ".js"]
MAX_FILE_LINES, MAX_FUNCTION_LINES = 300, 40
MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|setAttribute\(\"style\"|\bstyle:"
)
HEAD = re.compile(
    r"\bfunction\b.*\{$|=> \{$|^\s*(?!(?:if|for|while|switch|catch|else|return|try)\b)(?:async |static |get )*#?\w+\(.*\) \{$"
)


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.fixture(params=sorted(PAGES))
def page(request: pytest.FixtureRequest, tmp_path: Path) -> httpx2.AsyncClient:
    """A client of a service that serves this page."""
    app = create_service_app("pages", "0", settings=ServiceSettings(data_dir=tmp_path))
    add_routes(app, PAGES[request.param])
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://pages.test")


# ------------------------------------------------------------------ answers


async def test_every_file_has_its_type_and_strict_headers(page: httpx2.AsyncClient) -> None:
    names = ["", "main.js", "index.html", *(f"common/{path.name}" for path in COMMON.iterdir())]
    for name in names:
        answer = await page.get(f"/ui/{name}")
        assert answer.status_code == 200, name
        assert answer.headers["content-type"] == TYPES[Path(name or "index.html").suffix]
        rules = dict(rule.strip().split(" ", 1) for rule in answer.headers["content-security-policy"].split(";"))
        assert rules["default-src"] == rules["base-uri"] == rules["form-action"] == rules["frame-ancestors"] == "'none'"
        assert rules["script-src"] == rules["style-src"] == rules["connect-src"] == "'self'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


async def test_a_file_that_is_known_is_not_sent_again(page: httpx2.AsyncClient) -> None:
    first = await page.get("/ui/main.js")
    for tag in (first.headers["etag"], f"W/{first.headers['etag']}", f'"other", {first.headers["etag"]}'):
        again = await page.get("/ui/main.js", headers={"if-none-match": tag})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["content-security-policy"] == first.headers["content-security-policy"]
    assert (await page.get("/ui/main.js", headers={"if-none-match": '"other"'})).status_code == 200


async def test_the_page_is_found_without_its_slash(page: httpx2.AsyncClient) -> None:
    answer = await page.get("/ui")
    assert (answer.status_code, answer.headers["location"]) == (308, "ui/")


@pytest.mark.parametrize("path", [
    "nothing.js", "__init__.py", "../__init__.py", "..%2f__init__.py", "%2e%2e/__init__.py", "common/main.js",
    "common/..%2f..%2f__init__.py", "main.js/x", "MAIN.JS", "main.js%00",
])  # fmt: skip
async def test_what_is_no_file_of_the_page_is_a_problem(page: httpx2.AsyncClient, path: str) -> None:
    answer = await page.get(f"/ui/{path}")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert answer.json()["code"] == "not-found"


async def test_pages_are_only_read(page: httpx2.AsyncClient) -> None:
    assert (await page.post("/ui/main.js")).status_code == 405


OF_TEST = Frame(title="A & B", style="own.css", instead="<nothing>")


@pytest.mark.parametrize("there", [[], ["main.js"], ["own.css"]])
def test_a_page_without_its_beginning_or_its_style_is_refused(tmp_path: Path, there: list[str]) -> None:
    for name in there:
        (tmp_path / name).touch()
    with pytest.raises(FileNotFoundError):
        pages(tmp_path, OF_TEST)


def test_a_file_of_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    for name in ("main.js", "own.css", "secret.pem"):
        (tmp_path / name).touch()
    with pytest.raises(KeyError):
        pages(tmp_path, OF_TEST)


def test_what_a_frame_is_filled_with_is_text() -> None:
    made = OF_TEST.document().decode()
    assert "<title>A &amp; B</title>" in made
    assert 'href="own.css"' in made
    assert "&lt;nothing&gt;" in made
    assert "$" not in made


async def test_both_pages_have_the_same_frame(tmp_path: Path) -> None:
    def shape(text: str) -> str:
        return re.sub(r"<title>.*?</title>|<noscript>.*?</noscript>|href=\"[a-z]+\.css\"", "", text)

    made = []
    for name, router in PAGES.items():
        app = create_service_app("pages", "0", settings=ServiceSettings(data_dir=tmp_path / name))
        add_routes(app, router)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://pages.test") as client:
            made.append((await client.get("/ui/")).text)
    assert made[0] != made[1]
    assert shape(made[0]) == shape(made[1])


# -------------------------------------------------------------------- rules


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_have_a_door_plate_and_are_short(path: Path) -> None:
    text = path.read_text()
    opening = "<!--" if path.suffix in (".html", ".svg") else "/* "
    assert any(line.startswith(opening) for line in text.splitlines()[:2])
    assert len(text.splitlines()) <= MAX_FILE_LINES


@pytest.mark.parametrize("path", SCRIPTS, ids=name_of)
def test_scripts_make_no_markup_and_fetch_from_nowhere_else(path: Path) -> None:
    text = path.read_text()
    assert not MARKUP.findall(text)
    assert set(re.findall(r"https?://[^\s\"'`)]+", text)) <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".html"], ids=name_of)
def test_frames_hold_no_script_and_no_style_of_their_own(path: Path) -> None:
    text = path.read_text()
    assert re.search(r'<html lang="en">', text)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|<script(?![^>]*\bsrc=)|https?://", text)


def functions(text: str) -> dict[str, int]:
    """Lines of each function of a script, by its first line; its end is the first closing brace as far to the left."""
    lines, found = text.splitlines(), dict[str, int]()
    for start, line in enumerate(lines):
        if HEAD.search(line):
            left = len(line) - len(line.lstrip())
            end = next(i for i in range(start + 1, len(lines)) if re.match(rf"\s{{{left}}}\}}", lines[i]))
            found[f"{start + 1}: {line.strip()}"] = end - start + 1
    return found


@pytest.mark.parametrize("path", SCRIPTS, ids=name_of)
def test_functions_of_scripts_are_short(path: Path) -> None:
    assert not {head: length for head, length in functions(path.read_text()).items() if length > MAX_FUNCTION_LINES}


def test_the_length_of_a_scripts_function_is_measured() -> None:
    text = """export class A {
  #b(c) {
    if (c) {
      return () => {
        c();
      };
    }
  }
}
async function d() {
}
"""
    assert sorted(functions(text).values()) == [2, 3, 7]


# -------------------------------------------------------------------- wheel


def test_the_wheel_has_every_file_of_the_pages(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="hatchling is not installed: pip install --editable '.[test]'")
    code = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    assert {name_of(path) for path in FILES} <= set(zipfile.ZipFile(wheel).namelist())
