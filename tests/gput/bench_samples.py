"""Results of benches as tests need them: sound ones, with what a test says of their runs, machine and parameters."""

from __future__ import annotations

from typing import Any

from gput.bench.result import Figure, Machine, Program, Result

MACHINE: dict[str, Any] = {
    "cpu": "Some CPU @ 2.00GHz", "cores": 2, "memory_bytes": 8 << 30, "kernel": "6.1", "python": "3.11.7", "pytorch": None,
    "load_average": 0.1,
}  # fmt: skip


def result(
    bench: str = "receipts", machine: dict[str, Any] | None = None, parameters: dict[str, Any] | None = None,
    unit: str = "s", **figures: tuple[float, ...],
) -> Result:  # fmt: skip
    """A result whose figures had these runs."""
    return Result(
        bench=bench, parameters={"receipts": 200} if parameters is None else parameters, at="2026-01-02T03:04:05Z",
        program=Program(version="0.1.0"), machine=Machine(**{**MACHINE, **(machine or {})}),
        figures={name: Figure(unit=unit, runs=runs) for name, runs in figures.items()},
    )  # fmt: skip
