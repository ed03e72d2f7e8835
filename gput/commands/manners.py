"""What every group of commands has in common: its help leads with examples, it shows no traceback. Knows no command.

An example is a paragraph of the docstring that begins with `Example`; lines stay as they are written.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from gput.output import Format

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter

FormatOption = Annotated[Format, typer.Option("--format", help="table, json or jsonl")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="check and say what would be done; change nothing")]
SCHEMA_NOTE = "With --schema in place of all else it prints the JSON Schema of what --format json prints."


def split_help(text: str | None) -> tuple[list[str], str]:
    """A docstring's paragraphs that are examples, and the rest of it."""
    paragraphs = inspect.cleandoc(text or "").split("\n\n")
    examples = [part for part in paragraphs if part.startswith("Example")]
    return examples, "\n\n".join(part for part in paragraphs if part not in examples)


def _help(command: TyperCommand | TyperGroup, ctx: Context, formatter: HelpFormatter) -> None:
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


class _Command(TyperCommand):
    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        _help(self, ctx, formatter)


class _Group(TyperGroup):
    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        _help(self, ctx, formatter)


class Commands(typer.Typer):
    """A noun's commands. `help` of a noun with verbs; a noun that is itself a command has its docstring's."""

    def __init__(self, help: str | None = None) -> None:
        super().__init__(
            cls=_Group, help=help, no_args_is_help=help is not None, pretty_exceptions_enable=False, add_completion=False,
            rich_markup_mode=None,
        )  # fmt: skip

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """As Typer's."""
        options.setdefault("cls", _Command)
        return super().command(name, **options)
