"""The user's own module: found, called, and told of where it went wrong. Knows no graph and no archive; runs at build time only."""

from __future__ import annotations

import importlib
import inspect
import io
import logging
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any, Final

import torch
from pydantic import ValidationError
from torch import nn

from gpu_agent.workload.programs import BUILTIN, builtin
from gpu_agent.workload.source import ProgramSource
from shared.claims.shape import words_of
from shared.errors import BadRequest, GputError, InvalidProgram

_NOT_THE_USERS: Final = (
    sysconfig.get_path("stdlib"),
    sysconfig.get_path("purelib"),
    sysconfig.get_path("platlib"),
    str(Path(torch.__file__).parent),
    str(Path(__file__).parents[1]),
)
_THEIRS: Final = (
    Exception,
    SystemExit,
)  # whatever somebody's own code raises; sys.exit would end the command without a word
_REMEDY: Final = "It is the module's own code that raised this."


def source_of(target: str, options: dict[str, Any]) -> ProgramSource:
    """What the function `module:function`, or a built-in program, returns for these options.

    Raises:
        BadRequest: the target or an option does not exist.
        InvalidProgram: the module or the function raised something, or returned something else.
    """
    if target in BUILTIN:
        return builtin(target, **options)
    module_name, separator, function_name = target.partition(":")
    if not separator:
        raise BadRequest(
            f"{target!r} is neither module:function nor a built-in program",
            remedy=f"Built in are: {', '.join(sorted(BUILTIN))}.",
        )
    function = getattr(_imported(module_name, target), function_name, None)
    if not callable(function):
        raise BadRequest(f"Cannot find {target!r}: module {module_name!r} has no function of that name")
    try:
        inspect.signature(function).bind(**options)
    except TypeError as error:
        raise BadRequest(f"{target!r} does not accept these options: {error}") from error
    try:
        source = function(**options)
    except GputError:
        raise
    except _THEIRS as error:
        raise InvalidProgram(f"{target!r} raised {told(error)}", code="user-code-failed", remedy=_REMEDY) from error
    if not isinstance(source, ProgramSource):
        raise InvalidProgram(f"{target!r} returned a {type(source).__name__}; it must return a ProgramSource")
    if not isinstance(source.model, nn.Module):
        raise InvalidProgram(f"The model of {target!r} is no torch.nn.Module; a class is not an instance of it")
    return source


def _imported(name: str, target: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{name}.".startswith(f"{error.name}."):
            raise BadRequest(
                f"Cannot find {target!r}: {error}", remedy="Run it from where the module imports."
            ) from error
        raise _not_imported(name, error) from error
    except _THEIRS as error:
        raise _not_imported(name, error) from error


def _not_imported(name: str, error: BaseException) -> InvalidProgram:
    return InvalidProgram(f"Importing {name!r} raised {told(error)}", code="user-code-failed", remedy=_REMEDY)


def told(error: BaseException) -> str:
    """What was raised, in a line, and where in the user's own code: what PyTorch and Python did below is left out."""
    if isinstance(error, ValidationError):
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        words = f"{error.title}: {where}: {words_of(first)}" if where else f"{error.title}: {words_of(first)}"
    else:
        words = error.msg if isinstance(error, SyntaxError) else str(error)
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    place = _place(error)
    return f"{type(error).__name__}: {' '.join(lines[:3])[:400]}{f' ({place})' if place else ''}"


def _place(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{Path(error.filename).name}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [one for one in frames if not one.filename.startswith((*_NOT_THE_USERS, "<"))]
    return f"{Path(theirs[-1].filename).name}, line {theirs[-1].lineno}, in {theirs[-1].name}" if theirs else ""


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps back what PyTorch logs and prints of its insides when the user's code cannot be exported: our sentence names the place.

    What is written to standard error where all goes well, warnings say, is passed on.
    """
    before, said = logging.root.manager.disable, io.StringIO()
    logging.disable(logging.CRITICAL)  # of everybody: PyTorch makes its handlers anew as it goes
    try:
        with redirect_stderr(said):
            yield
        sys.stderr.write(said.getvalue())
    finally:
        logging.disable(before)


__all__ = ["quiet", "source_of", "told"]
