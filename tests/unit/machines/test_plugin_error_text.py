"""What drivers say, in the words of the port."""

from __future__ import annotations

from pathlib import Path

import pytest

from windrow.machines.plugin.error_text import (
    is_inconclusive,
    says_already_exists,
    says_not_found,
    translate_error,
)
from windrow.machines.plugin.process.client import DriverError, PluginDisconnected
from windrow.machines.plugin.tracked_machine import TrackedMachine
from windrow.machines.port import InfrastructureUnknown, MachineRefused

MACHINE = TrackedMachine("uid-1", "m-1", "noop", "ns:cc", {}, Path("/nonexistent"))


def told(text: str, method: str = "PreCreateCheck") -> InfrastructureUnknown | MachineRefused:
    return translate_error(DriverError(method, text), MACHINE)


@pytest.mark.parametrize(
    "text",
    [
        'virtualmachines.kubevirt.io "m-1" not found',
        "machine m-1 was Not Found",
        "GetState: instance 'm-1' could not be found",
        "VM not found: m-1",
        "m-1 not found",
    ],
)
def test_a_message_that_names_the_machine_means_not_found(text: str) -> None:
    assert says_not_found(text, "m-1")


@pytest.mark.parametrize(
    "text",
    [
        "not found",
        'secrets "m-1-cloudinit" not found',
        'secrets "m-1" not found',
        'namespaces "m-1" not found',
        'virtualmachines.kubevirt.io "m-10" not found',
        'virtualmachines.kubevirt.io "m-1.other" not found',
        'persistentvolumeclaims "m-1-disk-0-abcde" not found',
        'image "rke-m-1" not found',
        "networks for m-1: flavor 4x not found",
        "page not found: https://api.example/v1/m-1",
        'Error 404: project "acme" not found while listing m-1',
        "host key /state/machines/m-1/id_rsa not found",
        "credential for m-1 not found in vault",
        'namespaces "default" not found',
        "m-1: 401 Unauthorized: user not found",
        "m-1: dial tcp: lookup api: no such host: not found",
        "m-1 is Stopped",
    ],
)
def test_any_other_message_does_not_mean_not_found(text: str) -> None:
    assert not says_not_found(text, "m-1")


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ('virtualmachines.kubevirt.io "m-1" not found', True),
        ('virtualmachineinstances.kubevirt.io "m-1" not found', False),
        ("machine m-1 not found", False),
        ("m-1 not found", False),
    ],
)
def test_of_harvester_only_its_own_sentence_about_the_vm_counts(text: str, gone: bool) -> None:
    assert says_not_found(text, "m-1", "harvester") is gone


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ('virtualmachines.kubevirt.io "m-1" already exists', True),
        ("machine m-1 already exists in namespace default", True),
        ('persistentvolumeclaims "m-1-disk-0" already exists', False),
        ('secrets "m-1" already exists', False),
        ("machine m-10 already exists", False),
    ],
)
def test_only_a_machine_of_the_name_already_exists(text: str, taken: bool) -> None:
    assert says_already_exists(text, "m-1") is taken


@pytest.mark.parametrize(
    "text",
    [
        "Unauthorized",
        "the server replied 403",
        'x509: certificate signed by unknown authority (possibly because of "crypto/rsa")',
        "dial tcp 192.0.2.1:443: connect: connection refused",
        "Get https://x: context deadline exceeded",
        "too many retries waiting for machine to be Running.  Last error: Maximum number of retries (120) exceeded",
        "unexpected EOF",
        "connection is shut down",
        'Post "https://192.0.2.1/apis/kubevirt.io/v1/namespaces/default/virtualmachines": EOF',
        'Post "https://192.0.2.1/v2/droplets": http: server closed idle connection',
        "the server responded with the status code 502 Bad Gateway",
    ],
)
@pytest.mark.parametrize("method", ["PreCreateCheck", "Remove", "GetState"])
def test_an_unreachable_infrastructure_is_unknown_and_names_the_credential(text: str, method: str) -> None:
    unknown = told(text, method)
    assert isinstance(unknown, InfrastructureUnknown)
    assert "ns/cc" in unknown.message
    assert is_inconclusive(text)


@pytest.mark.parametrize(
    "text",
    [
        "connect: connection refused",
        "read: connection reset by peer",
        "rpc: connection is shut down",
        "connect: no route to host",
        "network is unreachable",
        "the API cannot be reached",
        "the API could not be reached",
        "the endpoint did not answer",
        "lookup api.example: no such host",
        "getaddrinfo: Name or service not known",
        "net/http: TLS handshake timeout",
        "the request timed out",
        "context deadline exceeded",
        "dial tcp 192.0.2.1:443: operation was canceled",
        "unexpected EOF",
        "write: broken pipe",
        "the API is temporarily unavailable",
        "503 Service Unavailable",
        "500 Internal Server Error",
        "Internal error occurred",
        "the server is currently unable to handle the request",
        "etcdserver: leader changed",
        "429 Too Many Requests",
        "RequestLimitExceeded",
        "Throttling: it is too much",
        "API rate limit reached",
        "SlowDown: please slow down",
        "too many retries",
        "502 Bad Gateway",
    ],
)
def test_what_says_that_no_answer_came_leaves_the_state_open(text: str) -> None:
    unknown = told(text, "Create")
    assert isinstance(unknown, InfrastructureUnknown)
    assert "could not reach the infrastructure (credential Secret ns/cc)" in unknown.message
    assert is_inconclusive(text)


@pytest.mark.parametrize(
    "text",
    [
        "Unauthorized",
        "unauthenticated: no token",
        "Forbidden",
        "not authorized to perform: RunInstances",
        "the API does not accept credential x",
        "Access denied",
        "AccessDenied",
        "AuthFailure",
        "Authentication is needed",
        "invalid credentials",
        "Invalid token",
        "an expired token was sent",
        "the token expired",
        "x509: unknown authority",
        "the certificate is of another host",
        "the kubeconfig has no context",
        "status 401",
        "status 403",
    ],
)
def test_what_says_that_the_credential_is_wrong_leaves_the_state_open(text: str) -> None:
    unknown = told(text, "Create")
    assert isinstance(unknown, InfrastructureUnknown)
    assert "credential Secret ns/cc was rejected (driver noop)" in unknown.message
    assert is_inconclusive(text)


@pytest.mark.parametrize(
    "text",
    [
        "denied the request: x is forbidden",
        "Forbidden: exceeded quota: compute",
        "Forbidden: Quota exceeded for cores",
        "Forbidden. QuotaExceeded",
        "exceeded quota: the timeout of the webhook",
    ],
)
def test_a_quota_or_an_admission_is_no_matter_of_the_credential(text: str) -> None:
    assert isinstance(told(text, "Create"), MachineRefused)


@pytest.mark.parametrize(
    "method", ["SetConfigFromFlags", "PreCreateCheck", "Create", "WindrowReplaceUserData"]
)
def test_only_calls_that_validate_refuse_a_machine_and_give_the_driver_s_own_hint(method: str) -> None:
    refused = told("size 1401 is too large; take less", method)
    assert isinstance(refused, MachineRefused)
    assert [(one.message, one.hint) for one in refused.problems] == [
        ("driver noop refuses m-1: size 1401 is too large", "take less")
    ]
    unknown = told("size 1401 is too large; take less", "Start")
    assert isinstance(unknown, InfrastructureUnknown)
    assert unknown.message.startswith("Start of m-1 by driver noop failed")


@pytest.mark.parametrize(
    "text",
    [
        "must specify harvester image name",
        'virtualmachineimages.harvesterhci.io "x" not found',
        'admission webhook "v.kubevirt.io" denied the request: bus is forbidden',
        'pods "m-1" is forbidden: exceeded quota: default-quota',
        "size 1401 is too large",
    ],
)
def test_what_is_wrong_with_the_machine_asked_for_is_refused(text: str) -> None:
    refused = told(text)
    assert isinstance(refused, MachineRefused)
    assert text in str(refused)


def test_a_failing_operation_on_an_existing_machine_is_no_refusal() -> None:
    assert isinstance(told("disk is busy", "Remove"), InfrastructureUnknown)


def test_a_panic_is_reported_in_one_line() -> None:
    unknown = told(
        "Panic in the driver: index out of range\ngoroutine 1 [running]:\nnet/http timeout", "Create"
    )
    assert isinstance(unknown, InfrastructureUnknown)
    assert "index out of range" in unknown.message
    assert "goroutine" not in unknown.message


def test_a_disconnected_plugin_means_unknown_with_a_hint() -> None:
    unknown = translate_error(PluginDisconnected("plugin x was lost", "do this"), MACHINE)
    assert isinstance(unknown, InfrastructureUnknown)
    assert (unknown.message, unknown.hint) == ("credential Secret ns/cc: plugin x was lost", "do this")
