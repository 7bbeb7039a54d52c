"""Classifies a driver's error text, which is all that a plugin sends of an error: only words that certainly mean a
refused request count as that, and only one sentence as "not found"."""

from __future__ import annotations

import re

from windrow.core.text import collapse_whitespace
from windrow.harvester.connection import describe_credential
from windrow.machines.plugin.process.client import DriverError, PluginError
from windrow.machines.plugin.tracked_machine import TrackedMachine
from windrow.machines.port import HARVESTER, InfrastructureUnknown, MachineRefused, Problem
from windrow.protocols import dockermachine as wire

# A denied admission, whatever its status code.
_ADMISSION_WORDS = ("denied the request", "exceeded quota", "quota exceeded", "quotaexceeded")
_AUTH_WORDS = (
    "unauthorized",
    "unauthenticated",
    "forbidden",
    "not authorized",
    "does not accept credential",
    "access denied",
    "accessdenied",
    "authfailure",
    "authentication",
    "invalid credential",
    "invalid token",
    "expired token",
    "token expired",
    "x509",
    "certificate",
    "kubeconfig",
)
_UNREACHABLE_WORDS = (
    "connection refused",
    "connection reset",
    "connection is shut down",
    "no route to host",
    "unreachable",
    "cannot be reached",
    "could not be reached",
    "did not answer",
    "no such host",
    "name or service not known",
    "timeout",
    "timed out",
    "deadline exceeded",
    "dial tcp",
    "unexpected eof",
    "broken pipe",
    "temporarily unavailable",
    "service unavailable",
    "internal server error",
    "internal error",
    "server is currently unable",
    "etcdserver",
    "too many requests",
    "requestlimitexceeded",
    "throttl",
    "rate limit",
    "slow down",
    "too many retries",
    "bad gateway",
)
# How Go's HTTP client, and each client made with it, begins where it has no response: Post "https://…": EOF
_NO_RESPONSE = re.compile(r'\b(?:get|head|post|put|patch|delete) "https?://[^"]*": ')
_AUTH_CODES = re.compile(r"\b(401|403)\b")
# The nouns that drivers use for a machine, and what follows.
_NOUN = (
    r"(?<![\w.-])(?:virtual ?machines?(?:\.kubevirt\.io)?|machine|vm|instance|server|droplet|node|domain|guest)"
    r"(?: named| with name)?"
)
_IS = r"(?:was |is |has |could |can |cannot |be |been )*"
_PANIC_TEXT = "panic in the driver"
# Only these calls validate the request; errors of others concern the infrastructure.
_VALIDATING_CALLS = frozenset({"SetConfigFromFlags", "PreCreateCheck", "Create", wire.REPLACE_USER_DATA})


def is_inconclusive(text: str) -> bool:
    """Whether the text leaves the state open: the infrastructure could not be reached or refused the credential."""
    low = text.lower()
    if _is_auth_failure(low) or _NO_RESPONSE.search(low):
        return True
    return any(word in low for word in _UNREACHABLE_WORDS)


def _is_auth_failure(low: str) -> bool:
    return any(word in low for word in _AUTH_WORDS) or _AUTH_CODES.search(low) is not None


def says_not_found(text: str, name: str, driver: str = "") -> bool:
    """Whether the text says of exactly this machine that it is not found. A missing Secret, disk or namespace is no
    machine, and m-1 is not m-10."""
    pattern = _harvester_not_found_pattern(name) if driver == HARVESTER else _not_found_pattern(name)
    return pattern.search(text) is not None and not is_inconclusive(text)


def says_already_exists(text: str, name: str) -> bool:
    """Whether the text says that a machine of this name exists already."""
    return re.search(rf"{_machine_pattern(name)}\s+already exists", text, re.IGNORECASE) is not None


def _not_found_pattern(name: str) -> re.Pattern[str]:
    before = rf"{_machine_pattern(name)}\s+{_IS}not (?:be )?found"
    after = rf"{_NOUN}\s+{_IS}not (?:be )?found[:,]?\s+[\"'(]?{_whole_name(name)}"
    return re.compile(f"{before}|{after}", re.IGNORECASE)


def _harvester_not_found_pattern(name: str) -> re.Pattern[str]:
    """The API server's own message, which the Go driver passes on and our plugin writes."""
    return re.compile(rf'virtualmachines\.kubevirt\.io "{re.escape(name)}" not found')


def _machine_pattern(name: str) -> str:
    """A machine's noun and the name, or a sentence that begins with the name."""
    return rf"(?:{_NOUN}:?\s+|^\s*)[\"'(]?{_whole_name(name)}[\"')]?:?"


def _whole_name(name: str) -> str:
    return rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)"


def translate_error(
    error: DriverError | PluginError, machine: TrackedMachine
) -> InfrastructureUnknown | MachineRefused:
    """The error as one of the port: which driver, which credential, what to do."""
    driver, credential = machine.driver, machine.credential
    if isinstance(error, PluginError):
        return InfrastructureUnknown(f"{describe_credential(credential)}: {error.message}", error.hint)
    text = collapse_whitespace(error.text)
    low = text.lower()
    if _PANIC_TEXT in low:
        first = error.text.strip().splitlines()[0]
        return InfrastructureUnknown(
            f"driver {driver} crashed ({describe_credential(credential)}): {first}",
            "report it to the driver's maintainers; the call is retried",
        )
    is_denied = any(word in low for word in _ADMISSION_WORDS)
    if _is_auth_failure(low) and not is_denied:
        return InfrastructureUnknown(
            f"{describe_credential(credential)} was rejected (driver {driver}): {text}",
            "put a valid credential with the rights that the driver needs into that Secret",
        )
    if is_inconclusive(text) and not is_denied:
        return InfrastructureUnknown(
            f"driver {driver} could not reach the infrastructure ({describe_credential(credential)}): {text}",
            "nothing to do if it is temporary; the call is retried",
        )
    if error.method in _VALIDATING_CALLS:
        message, _, hint = text.rpartition("; ")
        if not message:
            message, hint = text, "correct the machine config, or the infrastructure"
        return MachineRefused([Problem(f"driver {driver} refuses {machine.name}: {message}", hint)])
    return InfrastructureUnknown(
        f"{error.method} of {machine.name} by driver {driver} failed ({describe_credential(credential)}): {text}",
        "the call is retried",
    )
