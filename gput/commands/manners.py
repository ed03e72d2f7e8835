"""What every group of commands has in common: its help leads with examples, it shows no traceback. Knows no command.

An example is a paragraph of the docstring that begins with `Example`; lines stay as they are written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer._click.core import Command
from typer._click.exceptions import NoArgsIsHelpError, UsageError
from typer.core import TyperCommand, TyperGroup

from gput.output import Format
from shared.errors import BadRequest

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

FormatOption = Annotated[Format, typer.Option("--format", help="table, json or jsonl")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="check and say what would be done; change nothing")]
HELP = {"help_option_names": ["--help", "-h"]}
SCHEMA_NOTE = "With --schema in place of all else it prints the JSON Schema of what --format json prints."


def split_help(text: str | None) -> tuple[list[str], str]:
    """A docstring's paragraphs that are examples, and the rest of it."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    examples = [part for part in paragraphs if part.startswith("Example")]
    return examples, "\n\n".join(part for part in paragraphs if part not in examples)


def _help(command: Command, ctx: Context, formatter: HelpFormatter) -> None:
    """Usage, examples, then everything else in the order that one knows."""
    examples, rest = split_help(command.help)
    command.format_usage(ctx, formatter)
    for example in examples:
        formatter.write("\n" + "".join(f"{line}\n" for line in example.splitlines()))
    whole, command.help = command.help, rest
    try:
        command.format_help_text(ctx, formatter)
    finally:
        command.help = whole
    command.format_options(ctx, formatter)
    if any("--format" in param.opts for param in command.params):
        formatter.write(f"\n{SCHEMA_NOTE}\n")
    command.format_epilog(ctx, formatter)


@contextmanager
def _one_line(path: str) -> Iterator[None]:
    """Around what may find a command line wrong: the library would say so in lines of its own, without a code. `path`: of the command."""
    try:
        yield
    except NoArgsIsHelpError:
        raise  # which is the help
    except UsageError as error:
        named = path if error.ctx is None else error.ctx.command_path
        raise BadRequest(
            " ".join(error.format_message().split()), code="usage", remedy=f"`{named} --help` says what it takes."
        ) from None


class _Mannered(Command):
    def make_context(
        self, info_name: str | None, args: list[str], parent: Context | None = None, **extra: Any
    ) -> Context:
        with _one_line(f"{parent.command_path} {info_name}" if parent is not None else str(info_name)):
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Context) -> Any:
        with _one_line(ctx.command_path):
            return super().invoke(ctx)

    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        _help(self, ctx, formatter)


class _Command(_Mannered, TyperCommand):
    pass


class _Group(_Mannered, TyperGroup):
    pass


class Commands(typer.Typer):
    """A noun's commands. `help` of a noun with verbs; a noun that is itself a command has its docstring's."""

    def __init__(self, help: str | None = None) -> None:
        super().__init__(
            cls=_Group, help=help, no_args_is_help=help is not None, pretty_exceptions_enable=False, add_completion=False,
            rich_markup_mode=None, context_settings=HELP,
        )  # fmt: skip

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """As Typer's."""
        options.setdefault("cls", _Command)
        options.setdefault("context_settings", HELP)
        return super().command(name, **options)
