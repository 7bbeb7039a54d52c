"""What went wrong, as a person needs it: one line of fact, one line of cure, and the exit code.

`complaint_about` translates every error that a verb may meet. One that it does not know is a defect of ours and
says so; `--verbose` shows the trace of any.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from dataclasses import dataclass

from windrow.cli import exit_codes
from windrow.core.errors import UserError


class CliError(UserError):
    """Ends a verb: `fact` is what was found, `cure` what to do about it. `also` are further ones."""

    def __init__(
        self, message: str, hint: str, code: int = exit_codes.FAILED, others: Sequence[CliError] = ()
    ) -> None:
        super().__init__(message, hint)
        self.code, self.others = code, tuple(others)


def combine(errors: Sequence[CliError]) -> CliError:
    """Several complaints, of which there is at least one, as one that tells them all."""
    first, *rest = [one for several in errors for one in (several, *several.others)]
    return CliError(first.message, first.hint, first.code, rest)


def not_utf8(name: str) -> CliError:
    """The file called `said` is binary."""
    return CliError(f"{name} is not text in UTF-8.", "Name a file with YAML in it.", exit_codes.REFUSED)


@dataclass(frozen=True, slots=True)
class Advice:
    """How a refusal of an API server is told: what to do, and the exit code."""

    hint: str
    code: int


# By class name, most particular first along each error's own family (windrow.kubernetes.errors).
_ADVICE = {
    "Unauthorized": Advice(
        "Renew the credential in the kubeconfig, or name another one.", exit_codes.UNREACHABLE
    ),
    "Forbidden": Advice("Ask for this right, or use a kubeconfig that has it.", exit_codes.UNREACHABLE),
    "NotFound": Advice("Look at what is there: windrow status -A", exit_codes.NOT_FOUND),
    "CertificateError": Advice(
        "Take a kubeconfig that holds this server's present CA.", exit_codes.UNREACHABLE
    ),
    "Unreachable": Advice(
        "Start the server, or correct its address in the kubeconfig.", exit_codes.UNREACHABLE
    ),
    "OutcomeUnknown": Advice(
        "Look whether it happened (windrow status), then try again.", exit_codes.UNREACHABLE
    ),
    "TooManyRequests": Advice("Try again in a while.", exit_codes.UNREACHABLE),
    "ServerError": Advice("Look at the server's log, then try again.", exit_codes.UNREACHABLE),
    "AlreadyExists": Advice("Choose another name.", exit_codes.REFUSED),
    "Conflict": Advice("Somebody else changed it meanwhile; try again.", exit_codes.FAILED),
    "KubeError": Advice("Correct the input, then try again.", exit_codes.REFUSED),
}

# Two processes cannot have the same directory (windrow.apiserver.storage.sqlite, windrow.app.state_lock).
_IN_USE = frozenset({"StoreInUse", "DirectoryInUse"})
# What a flag names is not what it should be (windrow.app.driver_file).
_MISNAMED = frozenset({"BadDriver"})

_PORT_ERRORS = {
    errno.EADDRINUSE: ("is in use by another process", "Stop that one, or choose another port with --port."),
    errno.EACCES: ("is not for everybody to open", "Choose a port from 1024 on with --port."),
}

_SEPARATOR = "; "


def _split_hint(text: str, hint: str) -> tuple[str, str]:
    """Errors of ours often end with their own cure after a semicolon; it is better than a general one."""
    message, separator, own = text.rpartition(_SEPARATOR)
    return (message, own) if separator else (text, hint)


def _from_api_error(error: Exception) -> CliError:
    family = [kind.__name__ for kind in type(error).__mro__]
    answer = next(_ADVICE[name] for name in family if name in _ADVICE)
    # A server's own words are kept whole; only errors that we worded ourselves carry a cure.
    message, hint = str(error), answer.hint
    if family[0] in ("Unreachable", "CertificateError", "Unauthorized", "OutcomeUnknown", "Forbidden"):
        message, hint = _split_hint(message, hint)
    return CliError(message, hint, answer.code)


def _from_port_error(error: OSError) -> CliError:
    """The event loops name the address only in their text: `… bind on address ('127.0.0.1', 6443): …`."""
    state, hint = _PORT_ERRORS[error.errno or 0]
    found = re.search(r"\('([^']+)', (\d+)", str(error))
    called = f"port {found[2]} of {found[1]}" if found else "the port"
    return CliError(f"{called} {state}.", hint, exit_codes.FAILED)


def to_cli_error(error: BaseException) -> CliError:
    """How `error` is told."""
    from windrow.core.yaml import NotYaml
    from windrow.kubernetes.errors import KubeError
    from windrow.kubernetes.kubeconfig import BadKubeconfig

    match error:
        case CliError():
            return error
        case KubeError():
            return _from_api_error(error)
        case BadKubeconfig():
            return CliError(one_line(error.message), error.hint, exit_codes.UNREACHABLE)
        case NotYaml():
            return CliError(
                f"The input is not YAML: {one_line(error)}", "Correct it there.", exit_codes.REFUSED
            )
        case UnicodeDecodeError():
            return not_utf8("The input")
        case OSError() if error.filename:
            return CliError(
                f"{error.filename}: {error.strerror}", "Name a file that can be read.", exit_codes.REFUSED
            )
        case OSError() if error.errno in _PORT_ERRORS:
            return _from_port_error(error)
        case ExceptionGroup() if len(error.exceptions) == 1:
            return to_cli_error(error.exceptions[0])
    if isinstance(error, UserError):
        name = type(error).__name__
        code = (
            exit_codes.FAILED
            if name in _IN_USE
            else exit_codes.USAGE
            if name in _MISNAMED
            else exit_codes.UNREACHABLE
        )
        return CliError(error.message, error.hint, code)
    return CliError(
        f"{type(error).__name__}: {error}",
        "This is a defect of Windrow. Run it again with --verbose and report what you see.",
    )


def one_line(text: object) -> str:
    """What a parser says over several lines, as one."""
    return " ".join(str(text).replace('in "<unicode string>",', "at").split())


def _sentence(text: str) -> str:
    """`text` begun with a capital, unless it begins with a name."""
    first = text.split(" ", 1)[0]
    return text[:1].upper() + text[1:] if first.isalpha() and first.islower() else text


def render_error(error: CliError) -> list[str]:
    """One line of fact and one of cure for each."""
    several = (error, *error.others)
    return [line for one in several for line in (_sentence(one.message), f"→ {_sentence(one.hint)}")]
