"""Print a completion script for bash, zsh or fish.

The script completes commands, subcommands, options, the names of clusters and machines, and the values of options that
name a file, a directory or one of a few words. It is made from the same tables as --help; names are asked of the
management API, with the kubeconfig that the command would use.

Examples:
  source <(windrow completion bash)
  windrow completion zsh > "${fpath[1]}/_windrow"
  windrow completion fish > ~/.config/fish/completions/windrow.fish
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from windrow.cli import exit_codes
from windrow.cli.context import CliContext


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its spellings, its help, and what its value may be."""

    flags: tuple[str, ...]
    help: str
    takes_value: bool = False
    choices: tuple[str, ...] = ()
    value: str = ""  # the metavar


@dataclass(frozen=True, slots=True)
class Node:
    """A command or subcommand: what may be typed behind it."""

    help: str = ""
    options: tuple[Option, ...] = ()
    subcommands: Mapping[str, Node] = field(default_factory=dict)
    words: tuple[str, ...] = ()  # positional arguments with a fixed choice
    names: tuple[str, ...] = ()  # commands that print the names for its positional arguments


# What lists the names behind a positional argument, by its metavar.
_EACH = "{range .items[*]}{.metadata.name} {.metadata.namespace}/{.metadata.name} {end}"
_CLUSTERS = f"status -o 'jsonpath={_EACH}'"
_MACHINES = f"machine list -o 'jsonpath={_EACH}'"
_NAMES: Mapping[str, tuple[str, ...]] = {
    "CLUSTER": (_CLUSTERS,),
    "MACHINE": (_MACHINES,),
    "CLUSTER|MACHINE": (_CLUSTERS, _MACHINES),
}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(SCRIPTS), help="the shell that shall read the script")


def run(args: argparse.Namespace, context: CliContext) -> int:
    from windrow.cli.main import command_parsers

    commands = {name: read_parser(parser, summary) for name, summary, parser in command_parsers(context)}
    context.print(SCRIPTS[args.shell](Node(subcommands=commands)).rstrip("\n"))
    return exit_codes.OK


def read_parser(parser: argparse.ArgumentParser, summary: str = "") -> Node:
    """The parser's options and subcommands as a tree."""
    options, words = [], []
    names: dict[str, None] = {}
    subcommands: dict[str, Node] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {one.dest: one.help or "" for one in action._choices_actions}
            subcommands = {
                name: read_parser(one, helps.get(name, "")) for name, one in action.choices.items()
            }
        elif action.option_strings:
            options.append(
                Option(
                    tuple(action.option_strings),
                    (action.help or "").split(" (")[0].split(";")[0],
                    takes_value=action.nargs != 0,
                    choices=tuple(str(one) for one in action.choices or ()),
                    value=str(action.metavar or ""),
                )
            )
        else:
            words += [str(one) for one in action.choices or ()]
            names |= dict.fromkeys(_NAMES.get(str(action.metavar), ()))
    return Node(summary, tuple(options), subcommands, tuple(words), tuple(names))


def _walk(node: Node, path: str = "") -> Iterable[tuple[str, Node]]:
    """Each command with the words that lead to it; "" is `windrow` itself."""
    yield path, node
    for name, inner in node.subcommands.items():
        yield from _walk(inner, f"{path} {name}".strip())


def _case(paths: Iterable[str], action: str) -> str:
    return f"    {'|'.join(shlex.quote(path) for path in paths)}) {action} ;;"


def _render_posix(
    tree: Node,
    head: Sequence[str],
    words: str,
    first: int,
    current: str,
    reply: Callable[[str, Sequence[str]], str],
    actions: Mapping[str, str],
) -> list[str]:
    """The function of the script, for bash and zsh alike. `words` and `current` are the shell's variables of the words typed
    and of the place of the present one, `first` the place behind `windrow`; `actions` complete a value by its metavar."""
    steps, values, replies = [], [], []
    for path, node in _walk(tree):
        for name in node.subcommands:
            step = f"{path} {name}"
            steps.append(_case([step], f"at={shlex.quote(step.strip())}"))
        for option in node.options:
            if option.takes_value:
                complete = (
                    reply(" ".join(option.choices), ()) if option.choices else actions.get(option.value, ":")
                )
                values.append(_case([f"{path} {flag}" for flag in option.flags], f"{complete}; return"))
        found = [*node.subcommands, *node.words, *(flag for option in node.options for flag in option.flags)]
        replies.append(_case([path], reply(" ".join(found), node.names)))
    return [
        *head,
        "_windrow() {",
        '  local at="" i',
        f"  for ((i = {first}; i < {current}; i++)); do",
        f'    case "$at ${{{words}[i]}}" in',
        *steps,
        "    esac",
        "  done",
        f'  case "$at ${{{words}[{current}-1]}}" in',
        *values,
        "  esac",
        '  case "$at" in',
        *replies,
        "  esac",
        "}",
    ]


def render_bash(tree: Node) -> str:
    def reply(words: str) -> str:
        return f'COMPREPLY=($(compgen {words} -- "${{COMP_WORDS[COMP_CWORD]}}"))'

    def reply_words(words: str, names: Sequence[str]) -> str:
        asked = "".join(f'" $("${{COMP_WORDS[0]}}" {one} 2>/dev/null)"' for one in names)
        return reply(f"-W {shlex.quote(words)}{asked}")

    head = ["# bash completion for windrow; load it with: source <(windrow completion bash)"]
    actions = {"FILE": reply("-f"), "DIR": reply("-d")}
    lines = _render_posix(tree, head, "COMP_WORDS", 1, "COMP_CWORD", reply_words, actions)
    return "\n".join([*lines, "complete -o default -F _windrow windrow"])


def render_zsh(tree: Node) -> str:
    head = [
        "#compdef windrow",
        "# zsh completion for windrow; save it as _windrow in a directory of $fpath",
    ]
    actions = {"FILE": "_files", "DIR": "_files -/"}

    def reply(words: str, names: Sequence[str]) -> str:
        return f"compadd -- {words}{''.join(f' $($words[1] {one} 2>/dev/null)' for one in names)}"

    lines = _render_posix(tree, head, "words", 2, "CURRENT", reply, actions)
    load = 'if [ "$funcstack[1]" = "_windrow" ]; then _windrow "$@"; else compdef _windrow windrow; fi'
    return "\n".join([*lines, load])


def render_fish(tree: Node) -> str:
    nodes = list(_walk(tree))
    known = " ".join(shlex.quote(path) for path, _ in nodes if path)
    lines = [
        "# fish completion for windrow; save it in ~/.config/fish/completions",
        "function __windrow_at",
        "    set -l at ''",
        "    for word in (commandline -opc)[2..-1]",
        '        set -l step (string trim -- "$at $word")',
        f"        contains -- $step {known}; and set at $step",
        "    end",
        '    test "$at" = "$argv[1]"',
        "end",
        "complete -c windrow -f -n '__windrow_at \"\"'",
    ]
    for path, node in nodes:
        condition = f'__windrow_at "{path}"'
        head = f"complete -c windrow -n {shlex.quote(condition)}"
        for name, inner in node.subcommands.items():
            lines.append(f"{head} -f -a {shlex.quote(name)} -d {shlex.quote(inner.help)}")
        if node.words:
            lines.append(f"{head} -f -a {shlex.quote(' '.join(node.words))}")
        for names in node.names:
            asked = f"(windrow {names} 2>/dev/null | string split -n ' ')"
            lines.append(f"{head} -f -a {shlex.quote(asked)}")
        for option in node.options:
            flags = [f"-l {one[2:]}" if one.startswith("--") else f"-s {one[1:]}" for one in option.flags]
            if option.choices:
                flags.append(f"-x -a {shlex.quote(' '.join(option.choices))}")
            elif option.value == "DIR":
                flags.append("-x -a '(__fish_complete_directories)'")
            elif option.takes_value:
                flags.append("-r" if option.value == "FILE" else "-x")
            lines.append(f"{head} {' '.join(flags)} -d {shlex.quote(option.help)}")
    return "\n".join(lines)


SCRIPTS: dict[str, Callable[[Node], str]] = {"bash": render_bash, "zsh": render_zsh, "fish": render_fish}
