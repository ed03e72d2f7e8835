"""Finds the commands that README and docs show: blocks of code cut into simple commands, and `gput …` in running text. Runs nothing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHELL = "sh"
"""A fence of this name is shell and nothing else: each of its lines is a command. It is what the slow tier runs on the pages that run."""
PROGRAMS = ("gput", "make", "docker", "python", "python3", "git", "curl")
"""With one of these a line of any other block is taken for a command."""
KEYWORDS = ("do", "then", "else", "if", "while", "until", "time", "!")
FENCE = re.compile(r"^\s*```\s*(\w*)")
HEREDOC = re.compile(r"<<-?\s*'?(\w+)'?")
INNER = re.compile(r"\$\(((?:[^()]|\$\w+)*)\)")
SUM = re.compile(r"\$\(\([^()]*\)\)")
ASSIGNED = re.compile(r"^\w+=")
SPAN = re.compile(r"(?<!`)`gput ([^`]+)`")
OPERATORS = set("();|&<>")


@dataclass(frozen=True)
class Block:
    """A block of code: its page, number of its first line, the fence's word (`None`: indented), its lines."""

    page: str
    first: int
    kind: str | None
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Command:
    """One simple command: where it stands, its words without assignments and redirections, whether in a block of shell."""

    page: str
    line: int
    words: tuple[str, ...]
    shell: bool = False

    @property
    def where(self) -> str:
        """For people."""
        return f"{self.page}:{self.line}: {shlex.join(self.words)}"


def pages() -> list[Path]:
    """README and its neighbours, and every page under docs, those that come later included."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: str, text: str) -> Iterator[Block]:
    """In order. An indented block follows an empty line, another indented one, or the page's begin."""
    kept: list[str] = []
    kind: str | None = None
    first, fenced, before = 0, False, ""
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fence = FENCE.match(line)
        if fenced and not fence:
            kept.append(line)
        elif line.startswith("    ") and not fenced and (kept or not before.strip()):
            first = first if kept else number
            kept.append(line)
        elif kept or fenced:
            yield Block(page, first, kind, tuple(kept))
            kept, kind = [], None
        if fence:
            fenced, kind, first = not fenced, None if fenced else fence[1], number + 1
        before = line


def statements(block: Block) -> Iterator[tuple[int, str]]:
    """Line number and text of each statement: lines that end in `\\` are joined, what a here-document holds is left out."""
    ends, joined, first = None, "", 0
    for number, line in enumerate(block.lines, block.first):
        if ends is not None:
            ends = None if line.strip() == ends else ends
            continue
        first = first if joined else number
        joined += line.strip()
        if joined.endswith("\\"):
            joined = joined[:-1]
            continue
        document = HEREDOC.search(joined)
        ends = document[1] if document else None
        yield first, HEREDOC.sub("", joined)
        joined = ""


def commands(block: Block) -> Iterator[Command]:
    """Those of a block. Of a block that is not shell, the lines that begin with one of PROGRAMS; words after wide gaps explain."""
    for number, text in statements(block):
        if block.kind != SHELL:
            first, *_ = [word for word in text.split() if not ASSIGNED.match(word)] or [""]
            if block.kind not in (None, "", "console", "text") or first not in PROGRAMS:
                continue
            text = re.split(r"\s{3,}", text)[0]
        for words in simple(text):
            if block.kind == SHELL or words[0] in PROGRAMS:
                yield Command(block.page, number, words, block.kind == SHELL)


def simple(text: str) -> Iterator[tuple[str, ...]]:
    """The simple commands of one statement, those inside `$(…)` first."""
    text = SUM.sub("VALUE", text)
    while inner := INNER.search(text):
        yield from simple(inner[1])
        text = f"{text[: inner.start()]}VALUE{text[inner.end() :]}"
    reader = shlex.shlex(text, posix=True, punctuation_chars=True)
    reader.wordchars += "…$:@%,+^[]{}"
    words: list[str] = []
    redirected = False
    for word in [*reader, ";"]:
        if word and set(word) <= OPERATORS:
            redirected = set(word) <= set("<>")
            if not redirected:
                yield from _named(words)
                words = []
        elif redirected:
            redirected = False
        else:
            words.append(word)


def _named(words: list[str]) -> Iterator[tuple[str, ...]]:
    while words and (words[0] in KEYWORDS or ASSIGNED.match(words[0])):
        words = words[1:]
    if words and words[0] not in ("for", "done", "fi"):
        yield tuple(words)


def shown(page: Path) -> list[Command]:
    """Every command in the blocks of a page."""
    name = str(page.relative_to(ROOT))
    return [command for block in blocks(name, page.read_text()) for command in commands(block)]


def spoken(page: Path) -> Iterator[Command]:
    """Every `gput …` in running text: parts of commands, often without what they need."""
    name = str(page.relative_to(ROOT))
    for number, line in enumerate(page.read_text().splitlines(), 1):
        for found in SPAN.finditer(line):
            words = re.split(r"[|><…]", found[1])[0].split()
            if words:
                yield Command(name, number, ("gput", *words))
