"""The file that a bench's result is kept in: one schema, versioned, strictly read. Knows no bench and no machine.

A result may be published, so it has no place for a host's, a person's or a file's name. How the fields read is in docs/performance.md.
"""

from __future__ import annotations

import json
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from gput.whole import replace_whole
from shared.canonical import json_value
from shared.claims import Claim
from shared.errors import BadRequest

FAMILY = "gput-bench/"
FORMAT: Literal["gput-bench/1"] = "gput-bench/1"
MAX_BYTES = 1 << 20
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,79}$")]
# No sign that a path is made of, and none that a terminal obeys.
Words = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ()@.,+_-]{0,79}$")]
Version = Annotated[str, Field(pattern=r"^[0-9][0-9A-Za-z.+-]{0,39}$")]
Unit = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9 /]{0,39}$")]


class Figure(Claim):
    """One figure of a bench, as found by each run of it."""

    unit: Unit = Field(description="of every value")
    runs: tuple[float, ...] = Field(
        min_length=1,
        max_length=1000,
        description="what each run of the bench found; their median stands for the figure",
    )

    @property
    def median(self) -> float:
        """What stands for the figure."""
        return statistics.median(self.runs)

    @property
    def least(self) -> float:
        """The smallest of the runs."""
        return min(self.runs)

    @property
    def most(self) -> float:
        """The largest of the runs."""
        return max(self.runs)


class Machine(Claim):
    """What the figures were measured on."""

    cpu: Words = Field(description="the processor's model, or `unknown`")
    cores: int = Field(ge=1, description="how many the bench might use")
    memory_bytes: int = Field(ge=0, description="all of it; 0: unknown")
    kernel: Version = Field(description="its number alone; 0: unknown")
    python: Version
    pytorch: Version | None = Field(default=None, description="where the bench used it")
    load_average: float = Field(ge=0, description="of one minute, when the bench began")


class Program(Claim):
    """What was measured."""

    version: Version
    commit: str | None = Field(
        default=None, pattern=r"^[0-9a-f]{40}$", description="where the program ran from a checkout of its own"
    )
    modified: bool = Field(default=False, description="the checkout's code had changes that were not committed")


class Result(Claim):
    """One bench, run once or several times on one machine. What is not named here is refused."""

    format: Literal["gput-bench/1"] = Field(default=FORMAT, description="schema and version")
    bench: Name = Field(description="which: the word after `gput bench`")
    parameters: dict[Name, int | float | Words | None] = Field(description="what it was asked for, by name")
    at: str = Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$", description="when it began, in UTC")
    program: Program = Field(description="what was measured")
    machine: Machine = Field(description="and on what")
    figures: dict[Name, Figure] = Field(min_length=1, max_length=1000, description="what was found, by name")


def moment(seconds: float) -> str:
    """Seconds since 1970 as a result states them."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"


def encoded(result: Result) -> bytes:
    """The file's bytes: JSON that people can read and that differs line by line."""
    return json.dumps(result.model_dump(mode="json"), indent=2).encode() + b"\n"


def parse(data: bytes, name: str) -> Result:
    """The result in these bytes. `name`: what to call them where they are refused.

    Raises:
        BadRequest `not-a-bench-result`, or `newer-bench-result` for a schema of a later program.
    """
    try:
        value = json_value(data, MAX_BYTES)
    except BadRequest as error:
        raise _refused(name, error.detail) from None
    stated = value.get("format") if isinstance(value, dict) else None
    if stated != FORMAT:
        raise _other_format(name, stated)
    try:
        return Result.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise _refused(name, f"{ascii(where)[1:-1][:80]}: {first['msg'][:120]}") from None


def _other_format(name: str, stated: Any) -> BadRequest:
    number = stated.removeprefix(FAMILY) if isinstance(stated, str) and stated.startswith(FAMILY) else ""
    if number.isascii() and number.isdigit() and len(number) < 6 and int(number) > 1:
        return BadRequest(
            f"{name} is of schema {FAMILY}{int(number)}, and this program reads {FORMAT}", code="newer-bench-result",
            remedy="Read it with the release that wrote it, or a later one.",
        )  # fmt: skip
    return _refused(name, f"it does not say that it is of schema {FORMAT}")


def _refused(name: str, why: str) -> BadRequest:
    return BadRequest(
        f"{name} is not a bench's result: {why}", code="not-a-bench-result",
        remedy="`gput bench … --save FILE` writes one.",
    )  # fmt: skip


def read(path: Path) -> Result:
    """The result in a file.

    Raises:
        BadRequest: as `parse`; or `no-file`.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)  # no more of a file that cannot be one
    except OSError as error:
        raise BadRequest(f"cannot read {path}: {error.strerror}", code="no-file") from None
    return parse(data, str(path))


def write(path: Path, result: Result) -> None:
    """Write a result: whole, or what was there stays. Raises: OSError."""
    replace_whole(path, encoded(result))
