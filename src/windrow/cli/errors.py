"""Errors of the command line: a message, a hint and an exit code each.

`to_cli_error` translates every error that a command may raise. One that it does not expect is reported as a defect of
Windrow; `--verbose` prints the traceback of any.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from windrow.cli import exit_codes
from windrow.core.errors import UserError
from windrow.core.text import collapse_whitespace
from windrow.harvester.problems import split_problems

if TYPE_CHECKING:
    from windrow.kubernetes.errors import KubeError


class CliError(UserError):
    """Ends a command. `message` is what was found, `hint` what to do next; `others` are further errors."""

    def __init__(
        self, message: str, hint: str, code: int = exit_codes.FAILED, others: Sequence[CliError] = ()
    ) -> None:
        super().__init__(message, hint)
        self.code, self.others = code, tuple(others)


def combine(errors: Sequence[CliError]) -> CliError:
    """One or more errors as one that prints them all."""
    first, *rest = [one for several in errors for one in (several, *several.others)]
    return CliError(first.message, first.hint, first.code, rest)


def refused_error(name: str, problems: str) -> CliError:
    """The manager refuses the Cluster `name`; `problems` are those of its Ready condition."""
    hint_for_all = "Correct the manifest and apply it again."
    return combine(
        [
            CliError(f"Cluster {name} is refused: {message}", hint or hint_for_all, exit_codes.REFUSED)
            for message, hint in split_problems(problems) or [("", "")]
        ]
    )


def not_utf8(name: str) -> CliError:
    """The file `name` is binary."""
    return CliError(f"{name} is not text in UTF-8.", "Name a YAML file.", exit_codes.REFUSED)


_PORT_ERRORS = {
    errno.EADDRINUSE: (
        "is in use by another process",
        "Stop that process, or choose another port with --port.",
    ),
    errno.EACCES: ("needs privileges to listen on", "Choose a port of 1024 or above with --port."),
}


# What to do about an error of an API server, and the exit code, by class.
_API_HINTS = {
    "Unauthorized": ("Renew the credential in the kubeconfig, or name another one.", exit_codes.UNREACHABLE),
    "Forbidden": ("Grant this permission, or use a kubeconfig that has it.", exit_codes.UNREACHABLE),
    "NotFound": ("List the clusters: windrow status -A", exit_codes.NOT_FOUND),
    "CertificateError": ("Use a kubeconfig with this server's present CA.", exit_codes.UNREACHABLE),
    "Unreachable": ("Start the server, or correct its address in the kubeconfig.", exit_codes.UNREACHABLE),
    "InvalidReply": (
        "Use a kubeconfig whose server is a Kubernetes API, and no web page or proxy.",
        exit_codes.UNREACHABLE,
    ),
    "OutcomeUnknown": (
        "Check whether it was done (windrow status), then try again.",
        exit_codes.UNREACHABLE,
    ),
    "TooManyRequests": ("Try again in a minute.", exit_codes.UNREACHABLE),
    "ServerError": ("See the server's log, then try again.", exit_codes.UNREACHABLE),
    "AlreadyExists": ("Choose another name.", exit_codes.REFUSED),
    "Conflict": ("The object was changed meanwhile; try again.", exit_codes.FAILED),
    "KubeError": ("Correct the input, then try again.", exit_codes.REFUSED),
}
# Of a 404 that names no object.
_OTHER_SERVER = (
    "Use the kubeconfig of the management API, which windrow serve writes to .windrow/manager.yaml.",
    exit_codes.NOT_FOUND,
)


# Errors that Windrow words itself: they may end with a hint of their own, after a semicolon. A server's own words are
# kept whole.
_OWN_WORDS = frozenset({"Unreachable", "CertificateError", "Unauthorized", "OutcomeUnknown", "Forbidden"})


def _from_api_error(error: KubeError) -> CliError:
    from windrow.kubernetes.errors import names_no_object

    message, names = str(error), [kind.__name__ for kind in type(error).__mro__]
    hint, code = next(_API_HINTS[name] for name in names if name in _API_HINTS)
    if names_no_object(error):
        hint, code = _OTHER_SERVER
    if names[0] == "NotFound" and error.details.get("kind") == "namespaces":
        name = error.details["name"]
        message = f"Namespace {name} does not exist."
        hint = f"Correct the namespace, or create it: kubectl create namespace {name}"
    if names[0] in _OWN_WORDS and "; " in message:
        message, _, hint = message.rpartition("; ")
    return CliError(message, hint, code)


def _from_port_error(error: OSError) -> CliError:
    """The event loops name the address only in their text: `… bind on address ('127.0.0.1', 6443): …`."""
    state, hint = _PORT_ERRORS[error.errno or 0]
    found = re.search(r"\('([^']+)', (\d+)", str(error))
    return CliError(f"{f'Port {found[2]} of {found[1]}' if found else 'The port'} {state}.", hint)


# The exit codes of other UserErrors, by class; UNREACHABLE for those that are not here.
_EXIT_CODES = {
    "StoreInUse": exit_codes.FAILED,  # apiserver.storage.sqlite
    "StoreUnusable": exit_codes.FAILED,
    "StoreDamaged": exit_codes.FAILED,
    "BadCa": exit_codes.FAILED,  # app.state.pki
    "NotBackup": exit_codes.REFUSED,  # apiserver.storage.backup
    "NoOwnStore": exit_codes.NOT_FOUND,  # app.state.backup
    "DirectoryInUse": exit_codes.FAILED,  # app.state.directory
    "DirectoryUnusable": exit_codes.FAILED,
    "InvalidMatrix": exit_codes.REFUSED,  # bootstrap.support_matrix.matrix
    "BadDriver": exit_codes.USAGE,  # app.machines
    "Re2Missing": exit_codes.FAILED,  # core.formats.regex
    "RestoreInterrupted": exit_codes.FAILED,  # app.state.backup
    "OutputFailed": exit_codes.FAILED,  # cli.context
    "CannotServe": exit_codes.FAILED,  # dashboard.serve
    "AddonRefused": exit_codes.REFUSED,  # app.addon.plan
    "AddonFailed": exit_codes.FAILED,  # app.addon.run
    "AccountNotFound": exit_codes.NOT_FOUND,
}


def to_cli_error(error: BaseException) -> CliError:
    """The error as the command line prints it."""
    from windrow.core.formats.yaml import NotYaml
    from windrow.kubernetes.errors import KubeError

    match error:
        case CliError():
            return error
        case KubeError():
            return _from_api_error(error)
        case NotYaml():
            return CliError(
                f"The input is not YAML: {collapse_whitespace(error)}", "Correct it.", exit_codes.REFUSED
            )
        case UnicodeDecodeError():
            return not_utf8("The input")
        case OSError() if error.filename:
            return CliError(
                f"{error.filename}: {error.strerror}", "Name a readable file.", exit_codes.REFUSED
            )
        case OSError() if error.errno in _PORT_ERRORS:
            return _from_port_error(error)
        case ExceptionGroup() if len(error.exceptions) == 1:
            return to_cli_error(error.exceptions[0])
        case UserError():
            code = _EXIT_CODES.get(type(error).__name__, exit_codes.UNREACHABLE)
            return CliError(collapse_whitespace(error.message), error.hint, code)
    return CliError(
        f"{type(error).__name__}: {error}",
        "This is a defect of Windrow. Run it again with --verbose and report the output.",
    )


def _sentence(text: str) -> str:
    """`text` with a capital first letter, unless it begins with a name."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


def render_error(error: CliError) -> list[str]:
    """The message and the hint of each error, one line each."""
    several = (error, *error.others)
    return [line for one in several for line in (_sentence(one.message), f"→ {_sentence(one.hint)}")]
