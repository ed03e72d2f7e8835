"""The measured part of docs/performance.md: every result kept in docs/bench, as a table and as bars of text.

Knows the kept files and the figures' definitions; measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from gput.bench.figures import BENCHES, Bench, Definition
from gput.bench.result import Figure, Result, read

KEPT = Path(__file__).parent / "bench"
WIDTH = 44
UNDEFINED = Bench("a bench that this release does not have", False, ())


def results(folder: Path = KEPT) -> str:
    """A section for each file. Raises: BadRequest: one of them is no bench's result."""
    return "\n".join(_section(path.name, read(path)) for path in sorted(folder.glob("*.json")))


def _section(name: str, result: Result) -> str:
    bench = BENCHES.get(result.bench, UNDEFINED)
    asked = " ".join(
        f"{key} {value:g}" if isinstance(value, float) else f"{key} {value}" for key, value in result.parameters.items()
    )
    command = bench.command or f"gput bench {result.bench}"
    title = f"### `{command}`: {bench.about}\n\n{asked}. {_where(result)} ([{name}](bench/{name}))\n"
    rows = "".join(_row(key, one, bench.definition(key)) for key, one in result.figures.items())
    table = f"| figure | median | least – most | runs | better | |\n|---|---:|---:|---:|---|---|\n{rows}"
    return "\n".join([title, table, *_plots(result.figures, bench)])


def _where(result: Result) -> str:
    one, program = result.machine, result.program
    commit = f", commit {program.commit[:12]}" if program.commit else ""
    changed = " with uncommitted changes" if program.modified else ""
    torch = f", PyTorch {one.pytorch}" if one.pytorch else ""
    busy = ": **other work ran beside it**" if one.load_average > one.cores / 2 else ""
    return (
        f"Measured {result.at[:10]} on {one.cores} cores of {one.cpu}, {one.memory_bytes / 2**30:.0f} GiB, Linux {one.kernel}, "
        f"Python {one.python}{torch}; load average at the start {one.load_average:g}{busy}. "
        f"Release {program.version}{commit}{changed}."
    )  # fmt: skip


def _row(name: str, figure: Figure, definition: Definition | None) -> str:
    spread = f"{_number(figure.least)} – {_number(figure.most)}" if len(figure.runs) > 1 else "one run"
    better, meaning = (definition.better.value, definition.meaning) if definition else ("", "")
    cells = (f"`{name}`", f"{_number(figure.median)} {figure.unit}", spread, str(len(figure.runs)), better, meaning)
    return f"| {' | '.join(cells)} |\n"


def _number(value: float) -> str:
    """Four digits that count, and never an exponent for what people can read without."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _plots(figures: Mapping[str, Figure], bench: Bench) -> Iterator[str]:
    by_unit: dict[str, dict[str, Figure]] = {}
    for name, figure in figures.items():
        definition = bench.definition(name)
        if definition is not None and definition.plotted:
            by_unit.setdefault(figure.unit, {})[name] = figure
    for unit, found in by_unit.items():
        if len(found) > 1:
            yield "```text\n" + "".join(f"{line}\n" for line in bars(found, unit)) + "```\n"


def bars(figures: Mapping[str, Figure], unit: str, width: int = WIDTH) -> Iterable[str]:
    """A line per figure on one scale: full as far as the least of its runs, shaded as far as the most."""
    longest = max(figure.most for figure in figures.values())
    scale = width / longest if longest > 0 else 0.0
    room = max(map(len, figures))
    for name, figure in figures.items():
        full, whole = (round(max(value, 0.0) * scale) for value in (figure.least, figure.most))
        bar = "█" * full + "▒" * (whole - full)
        yield f"{name:<{room}}  {bar:<{width}}  {_number(figure.median)} {unit}".rstrip()
