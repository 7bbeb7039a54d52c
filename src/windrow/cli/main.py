"""`windrow`: the table of verbs, and what is common to all of them.

Start-up is kept light: a verb's module, and whatever that needs, is imported when the verb is called.
"""

from __future__ import annotations

import argparse
import importlib
import os
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from windrow.cli import exits, options
from windrow.cli.edge import Edge, real_edge


@dataclass(frozen=True, slots=True)
class Verb:
    """`module` (in windrow.cli.verbs) has `arguments(parser)` and `run(given, edge) -> exit code`."""

    name: str
    module: str
    summary: str
    lasting: bool = False  # runs until it is ended


GROUPS: dict[str, tuple[Verb, ...]] = {
    "Try it": (Verb("demo", "demo", "watch a cluster come up, lose machines and heal"),),
    "Run it": (
        Verb("emulate", "emulate", "run an embedded Harvester on this computer", lasting=True),
        Verb("serve", "serve", "run the management API and the cluster manager", lasting=True),
    ),
    "Clusters": (
        Verb("check", "check", "say what is wrong with a manifest; change nothing"),
        Verb("apply", "apply", "create or change what a manifest describes"),
        Verb("import", "import_", "print a manifest without Rancher's own bookkeeping"),
        Verb("status", "status", "show clusters, pools and machines, and what each waits for"),
        Verb("scale", "scale", "set the size of a pool"),
        Verb("kubeconfig", "kubeconfig", "print the kubeconfig of a cluster"),
        Verb("delete", "delete", "delete a cluster and everything made for it"),
    ),
    "Look closer": (
        Verb("machine", "machine", "list machines"),
        Verb("driver", "driver", "list, add, switch and remove node drivers"),
        Verb("version", "version", "print the version"),
    ),
}

VERBS = {verb.name: verb for verbs in GROUPS.values() for verb in verbs}

FIRST_STEPS = """First steps:
  windrow demo                    a whole cluster on this computer
  windrow VERB --help             what a verb takes
  docs/tutorial/first-cluster.md  the same by hand, step by step"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Names an option's argument once: `-o, --output FORMAT`."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {self._format_args(action, action.dest.upper())}"


class _Parser(argparse.ArgumentParser):
    """Prints to the edge; says a fault in two lines."""

    def __init__(self, edge: Edge, **settings: Any) -> None:
        width = min(edge.width, 80)
        super().__init__(
            formatter_class=lambda prog: _Help(prog, width=width, max_help_position=26),
            allow_abbrev=False,
            **settings,
        )
        self.color = False  # Python 3.14 would colour the help
        self._edge = edge

    def _print_message(self, message: str, file: Any = None) -> None:
        if message:
            self._edge.out.write(message)

    def add_subparsers(self, **settings: Any) -> Any:
        settings["parser_class"] = partial(_Parser, self._edge)
        return super().add_subparsers(**settings)

    def error(self, message: str) -> NoReturn:
        self._edge.note(f"{self.prog}: {message}")
        self._edge.note(f"→ See what it takes: {self.prog} --help")
        raise SystemExit(exits.USAGE)


def render_help() -> list[str]:
    """The first thing a visitor reads."""
    lines = ["Kubernetes clusters on Harvester HCI.", "", "  windrow VERB [options]", ""]
    for group, verbs in GROUPS.items():
        lines += [f"{group}:", *(f"  {verb.name:<11} {verb.summary}" for verb in verbs), ""]
    lines += FIRST_STEPS.splitlines()
    return lines


def _unknown(word: str, edge: Edge) -> int:
    import difflib

    near = difflib.get_close_matches(word, VERBS, 1)
    edge.note(f"windrow: there is no verb {word!r}")
    edge.note(f"→ Did you mean: windrow {near[0]}" if near else "→ See the verbs: windrow --help")
    return exits.USAGE


def _parser_for(verb: Verb, module: Any, edge: Edge) -> _Parser:
    """The verb's parser. Its help is the module's docstring: paragraphs, then examples as they stand."""
    head, _, examples = (module.__doc__ or verb.summary).partition("\nExamples:\n")
    width = min(edge.width, 80)
    parser = _Parser(
        edge,
        prog=f"windrow {verb.name}",
        description="\n\n".join(textwrap.fill(part, width) for part in head.strip().split("\n\n")),
        epilog=f"examples:\n{examples.rstrip()}" if examples else None,
    )
    module.arguments(parser)
    options.add_verbose(parser)
    return parser


def _run_verb(verb: Verb, rest: Sequence[str], edge: Edge, verbose: bool) -> int:
    try:
        module = importlib.import_module(f"windrow.cli.verbs.{verb.module}")
        given = _parser_for(verb, module, edge).parse_args(rest)
        _set_up_logs(verb, edge, verbose)
        return int(module.run(given, edge))
    except Exception as error:
        return _complain(error, edge, verbose)


def _set_up_logs(verb: Verb, edge: Edge, verbose: bool) -> None:
    from windrow.cli import logs

    logs.set_up(edge, lasting=verb.lasting, verbose=verbose)


def _complain(error: Exception, edge: Edge, verbose: bool) -> int:
    from windrow.cli.complaints import complaint_about, render_complaint

    if isinstance(error, BrokenPipeError):
        raise error
    if verbose:
        import traceback

        traceback.print_exception(error, file=edge.err)
    complaint = complaint_about(error)
    for line in render_complaint(complaint):
        edge.note(line)
    return complaint.code


def run(argv: Sequence[str], edge: Edge) -> int:
    """Carry out one command line and return its exit code."""
    words = [word for word in argv if word != "--verbose"]  # common to all verbs, so at home in any place
    verbose = "--verbose" in argv
    match words:
        case [] | ["--help" | "-h" | "help"]:
            for line in render_help():
                edge.say(line)
            return exits.OK
        case ["help", word, *_]:
            words = [word, "--help"]
        case ["--version", *_]:
            words = ["version"]
    verb = VERBS.get(words[0])
    if verb is None:
        return _unknown(words[0], edge)
    try:
        return _run_verb(verb, words[1:], edge, verbose)
    except SystemExit as end:
        return int(end.code or 0)
    except KeyboardInterrupt:
        if verb.lasting:  # how else would it end
            edge.note("Stopped.")
            return exits.OK
        edge.note("Interrupted.")
        return exits.INTERRUPTED


def main() -> int:
    """The console script."""
    import sys

    edge = real_edge()
    try:
        code = run(sys.argv[1:], edge)
        edge.out.flush()
    except BrokenPipeError:  # `windrow … | head`: the reader has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exits.OK
    return code
