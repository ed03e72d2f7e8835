"""`gput completion`: scripts for shells, and what they ask. Knows the nouns by name; loads the one that is being completed."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from gput.commands.manners import Commands

app = Commands('Completion in a shell.\n\nExample:  eval "$(gput completion bash)"')


class Shell(StrEnum):
    """Shells with a script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def _script(shell: Shell) -> None:
    def script() -> None:
        from gput.completion import SCRIPTS

        print(SCRIPTS[shell], end="")

    where = {
        Shell.BASH: 'eval "$(gput completion bash)"     # in ~/.bashrc',
        Shell.ZSH: 'eval "$(gput completion zsh)"      # in ~/.zshrc, after compinit',
        Shell.FISH: "gput completion fish > ~/.config/fish/completions/gput.fish",
    }
    script.__doc__ = f"Print the script for {shell.value}.\n\nExample:  {where[shell]}"
    app.command(shell.value)(script)


for one in Shell:
    _script(one)


@app.command(hidden=True)
def words(
    typed: Annotated[list[str] | None, typer.Argument(help="the words so far; the last one is begun")] = None,
) -> None:
    """What may come next, a word a line; nothing where a file is wanted.

    Example:  gput completion words -- session li
    """
    from gput.__main__ import COMMANDS
    from gput.completion import candidates

    for word in candidates(typed or [""], COMMANDS):
        print(word)
