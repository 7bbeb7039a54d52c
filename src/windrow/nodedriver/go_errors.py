"""Errors as text for docker-machine's hosts: one line, the Go driver's text where it has one.

Hosts act on that text: rancher-machine takes any error with the words "not found" on `rm` and `status` as proof that the
machine is gone, and deletes its record. So only MachineNotFound keeps these words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from windrow.cloudinit.document import BadUserData
from windrow.core.text import one_line
from windrow.harvester.problems import Problem
from windrow.kubernetes.errors import KubeError, Unauthorized
from windrow.kubernetes.kubeconfig import BadKubeconfig
from windrow.nodedriver.config import InvalidDriverConfig
from windrow.nodedriver.effects import WaitHopeless, WaitTimeout
from windrow.nodedriver.errors import Busy, MachineNotFound, NotRunning, Refused

MAX_LENGTH = 1900

_NOT_FOUND = re.compile(r"not(\s+)found", re.IGNORECASE)
_HIDDEN = "(hidden)"
_CREDENTIAL = re.compile(r"(?i)\b(bearer +|(?:token|password)\s*[:=]\s*)[^\s,;]{8,}")
# Errors whose texts were written for people; of any other only its class and place are reported.
_EXPECTED = (InvalidDriverConfig, BadKubeconfig, BadUserData, Busy, KubeError, NotRunning, OSError)


def error_text(error: BaseException, method: str, secrets: Iterable[str] = ()) -> str:
    """`error` for the host: one line, never empty, below 2000 characters, without any of `secrets`.

    Holds "not found" for MachineNotFound only.
    """
    if isinstance(error, MachineNotFound):
        return one_line(str(error))
    text = one_line(_describe(error, method)) or f"{method} failed: {type(error).__name__}"
    for secret in sorted({each for each in secrets if len(each) > 3}, key=len, reverse=True):
        text = text.replace(one_line(secret), _HIDDEN)
    text = _NOT_FOUND.sub(r"not\1there", _CREDENTIAL.sub(rf"\1{_HIDDEN}", text))
    return one_line(text, MAX_LENGTH)


def is_defect(error: BaseException) -> bool:
    """Whether it is a defect of the driver: an error without a text for people."""
    return not isinstance(error, (MachineNotFound, WaitTimeout, Refused, *_EXPECTED))


def _describe(error: BaseException, method: str) -> str:
    match error:
        case Refused(problems=problems):
            return "; ".join(dict.fromkeys(map(_describe_problem, problems)))
        case WaitHopeless():
            return f"waiting for {(error.stage or method).rstrip('.')} is hopeless: {error.reason}"
        case WaitTimeout():
            return f"too many retries waiting for {error.stage or method}  Last error: {error.reason}"
        case Unauthorized():
            # The transport names server, credential and reason; the text adds how a machine gets another credential.
            return f"{error.message}; the next command of the host takes a new one from HARVESTER_KUBECONFIG_CONTENT"
        case _ if not is_defect(error):
            return str(error)
    return f"an error in the driver itself, in {method}: {type(error).__name__}{_location(error)}"


def _describe_problem(problem: Problem) -> str:
    return problem.go or str(problem)


def _location(error: BaseException) -> str:
    """Module and line where it was raised, without any value."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return ""
    module = trace.tb_frame.f_globals.get("__name__", "?")
    return f" at {module}:{trace.tb_lineno}"
