"""What went wrong, as a person needs it: one line of fact, one line of cure, and the exit code.

`complaint_about` translates every error that a verb may meet. One that it does not know is a defect of ours and
says so; `--verbose` shows the trace of any.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from dataclasses import dataclass

from windrow.cli import exits


class Complaint(Exception):
    """Ends a verb: `fact` is what was found, `cure` what to do about it. `also` are further ones."""

    def __init__(
        self, fact: str, cure: str, code: int = exits.FAILED, also: Sequence[Complaint] = ()
    ) -> None:
        super().__init__(f"{fact}; {cure}")
        self.fact, self.cure, self.code, self.also = fact, cure, code, tuple(also)


def together(complaints: Sequence[Complaint]) -> Complaint:
    """Several complaints, of which there is at least one, as one that tells them all."""
    first, *rest = [one for several in complaints for one in (several, *several.also)]
    return Complaint(first.fact, first.cure, first.code, rest)


def not_text(said: str) -> Complaint:
    """The file called `said` is binary."""
    return Complaint(f"{said} is not text in UTF-8.", "Name a file with YAML in it.", exits.REFUSED)


@dataclass(frozen=True, slots=True)
class Answer:
    """How a refusal of an API server is told: what to do, and the exit code."""

    cure: str
    code: int


# By class name, most particular first along each error's own family (windrow.kube.errors).
_ANSWERS = {
    "Unauthorized": Answer("Renew the credential in the kubeconfig, or name another one.", exits.UNREACHABLE),
    "Forbidden": Answer("Ask for this right, or use a kubeconfig that has it.", exits.UNREACHABLE),
    "NotFound": Answer("Look at what is there: windrow status -A", exits.NOT_FOUND),
    "NotTrusted": Answer("Take a kubeconfig that holds this server's present CA.", exits.UNREACHABLE),
    "Unreachable": Answer("Start the server, or correct its address in the kubeconfig.", exits.UNREACHABLE),
    "Unanswered": Answer("Look whether it happened (windrow status), then try again.", exits.UNREACHABLE),
    "Throttled": Answer("Try again in a while.", exits.UNREACHABLE),
    "ServerFailed": Answer("Look at the server's log, then try again.", exits.UNREACHABLE),
    "Exists": Answer("Choose another name.", exits.REFUSED),
    "Conflict": Answer("Somebody else changed it meanwhile; try again.", exits.FAILED),
    "KubeError": Answer("Correct the input, then try again.", exits.REFUSED),
}

# Two processes cannot have the same directory (windrow.apiserver.stores.sqlite, windrow.assembly.tenure).
_IN_USE = frozenset({"StoreInUse", "DirectoryInUse"})
# What a flag names is not what it should be (windrow.assembly.driver_file).
_MISNAMED = frozenset({"BadDriver"})

_PORT_TROUBLE = {
    errno.EADDRINUSE: ("is in use by another process", "Stop that one, or choose another port with --port."),
    errno.EACCES: ("is not for everybody to open", "Choose a port from 1024 on with --port."),
}

_SEPARATOR = "; "


def _two_lines(text: str, cure: str) -> tuple[str, str]:
    """Errors of ours often end with their own cure after a semicolon; it is better than a general one."""
    fact, separator, own = text.rpartition(_SEPARATOR)
    return (fact, own) if separator else (text, cure)


def _about_server(error: Exception) -> Complaint:
    family = [kind.__name__ for kind in type(error).__mro__]
    answer = next(_ANSWERS[name] for name in family if name in _ANSWERS)
    # A server's own words are kept whole; only errors that we worded ourselves carry a cure.
    fact, cure = str(error), answer.cure
    if family[0] in ("Unreachable", "NotTrusted", "Unauthorized", "Unanswered", "Forbidden"):
        fact, cure = _two_lines(fact, cure)
    return Complaint(fact, cure, answer.code)


def _about_port(error: OSError) -> Complaint:
    """The event loops name the address only in their text: `… bind on address ('127.0.0.1', 6443): …`."""
    fact, cure = _PORT_TROUBLE[error.errno or 0]
    place = re.search(r"\('([^']+)', (\d+)", str(error))
    called = f"port {place[2]} of {place[1]}" if place else "the port"
    return Complaint(f"{called} {fact}.", cure, exits.FAILED)


def complaint_about(error: BaseException) -> Complaint:
    """How `error` is told."""
    from windrow.formats.yaml import NotYaml
    from windrow.kube.errors import KubeError
    from windrow.kube.kubeconfig import BadKubeconfig

    match error:
        case Complaint():
            return error
        case KubeError():
            return _about_server(error)
        case BadKubeconfig():
            return Complaint(one_line(error.fact), error.cure, exits.UNREACHABLE)
        case NotYaml():
            return Complaint(f"The input is not YAML: {one_line(error)}", "Correct it there.", exits.REFUSED)
        case UnicodeDecodeError():
            return not_text("The input")
        case OSError() if error.filename:
            return Complaint(
                f"{error.filename}: {error.strerror}", "Name a file that can be read.", exits.REFUSED
            )
        case OSError() if error.errno in _PORT_TROUBLE:
            return _about_port(error)
        case ExceptionGroup() if len(error.exceptions) == 1:
            return complaint_about(error.exceptions[0])
    fact, cure = getattr(error, "fact", ""), getattr(error, "cure", "")
    if fact and cure:  # InfrastructureUnknown and its like
        name = type(error).__name__
        code = exits.FAILED if name in _IN_USE else exits.USAGE if name in _MISNAMED else exits.UNREACHABLE
        return Complaint(str(fact), str(cure), code)
    return Complaint(
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


def render_complaint(complaint: Complaint) -> list[str]:
    """One line of fact and one of cure for each."""
    several = (complaint, *complaint.also)
    return [line for one in several for line in (_sentence(one.fact), f"→ {_sentence(one.cure)}")]
