"""Completion in a shell: what may come next after these words. Loads the one command that they name, and nothing else of its nouns.

The scripts ask `gput completion words -- WORD…`; where nothing is answered the shell offers files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from gput.tree import command_of

SCRIPTS = {
    "bash": """\
_gput() {
    local IFS=$'\\n'
    COMPREPLY=($(compgen -W "$(gput completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _gput gput
""",
    "zsh": """\
#compdef gput
_gput() {
    local -a found
    found=("${(@f)$(gput completion words -- "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[*]}" ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _gput gput
""",
    "fish": """\
function __gput
    set -l words (commandline -opc) (commandline -ct)
    gput completion words -- $words[2..-1] 2>/dev/null
end
complete -c gput -a '(__gput)'
""",
}


def candidates(words: Sequence[str], nouns: Mapping[str, tuple[str, str]]) -> list[str]:
    """What the last of `words` may become. `nouns`: every noun with its module; an unknown one has nothing to offer."""
    *before, last = words or [""]
    if not before:
        return [noun for noun in nouns if noun.startswith(last)]
    if before[0] not in nouns:
        return []
    command = command_of(nouns[before[0]][0])
    rest = list(before[1:])
    while rest and (verb := getattr(command, "commands", {}).get(rest[0])) is not None:
        command = verb
        rest.pop(0)
    return [word for word in _next(command, rest, last) if word.startswith(last)]


def _next(command: Any, before: Sequence[str], last: str) -> list[str]:
    """The names that are wanted here: an option's or argument's values where they are a closed list, verbs, options. None: a file is."""
    if before and (values := _choices(command, before[-1])):
        return values
    at_option = last.startswith("-")
    if not at_option and (values := _argument(command, before)):
        return values
    verbs = [name for name, verb in getattr(command, "commands", {}).items() if not verb.hidden]
    if verbs or not at_option:
        return verbs
    options = [flag for option in command.params for flag in option.opts if flag.startswith("--") and not option.hidden]
    return [*options, "--help", *(["--schema"] if "--format" in options else [])]


def _choices(command: Any, flag: str) -> list[str]:
    """The values that an option may have, where they are a closed list."""
    for option in command.params:
        if flag in option.opts:
            return _values(option)
    return []


def _argument(command: Any, before: Sequence[str]) -> list[str]:
    """The values that the command's only argument may have, where they are a closed list and no word was said yet."""
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    return _values(arguments[0]) if len(arguments) == 1 and not before else []


def _values(param: Any) -> list[str]:
    kind: Any = getattr(getattr(param, "type_descriptor", None), "annotation", None)
    if hasattr(kind, "__members__"):
        return [str(value) for value in kind]
    return [str(value) for value in get_args(kind)] if get_origin(kind) is Literal else []
