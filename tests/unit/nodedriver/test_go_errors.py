"""Errors as a host hears them: one line, Go's words, never an accidental "not found", never a secret."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.cloudinit.document import BadUserData
from windrow.harvester.problems import Problem
from windrow.kubernetes.errors import Forbidden, KubeError, NotFound, Unauthorized, Unreachable
from windrow.nodedriver.config import InvalidDriverConfig
from windrow.nodedriver.effects import WaitHopeless, WaitTimeout
from windrow.nodedriver.errors import Busy, MachineNotFound, NotRunning, Refused
from windrow.nodedriver.go_errors import MAX_LENGTH, error_text

TEN = timedelta(minutes=10)


def test_only_the_end_of_this_machine_s_own_vm_is_not_found() -> None:
    assert error_text(MachineNotFound("m"), "GetState") == 'virtualmachines.kubevirt.io "m" not found'


@pytest.mark.parametrize(
    "error",
    [
        NotFound('virtualmachineimages.harvesterhci.io "x" not found', status=404),
        NotFound("404 page Not  Found", status=404),
        Refused(Problem('Harvester refuses VM a/b: namespaces "a" not found', "create it")),
        KubeError("not\nfound"),
        WaitTimeout("wait", "secret not found", TEN, "machine removed."),
        OSError(2, "NOT FOUND", "/k"),
        Busy("it is not found", "wait"),
        RuntimeError("not found"),
    ],
)
@pytest.mark.parametrize("method", ["Remove", "GetState", "Create"])
def test_no_other_error_says_not_found(error: Exception, method: str) -> None:
    text = error_text(error, method)
    assert text
    assert "not found" not in text.lower()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (NotRunning(), "Host is not running"),
        (InvalidDriverConfig("unexpected end of JSON input"), "unexpected end of JSON input"),
        (Refused(Problem("fact", "cure")), "fact; cure"),
        (Refused(Problem("fact", "cure", go="Go's words")), "Go's words"),
        (Refused(Problem("a", "b", go="one"), Problem("c", "d"), Problem("a", "b", go="one")), "one; c; d"),
        (BadUserData("the user data is a list", "write a map"), "the user data is a list; write a map"),
        (Busy("it is being stopped", "wait"), "it is being stopped; wait"),
        (
            WaitTimeout("wait", "it is starting: no host", TEN, "machine to be Running."),
            "too many retries waiting for machine to be Running.  Last error: it is starting: no host",
        ),
        (
            WaitHopeless("wait", "it is failed: crash", TEN, "machine to be Running."),
            "waiting for machine to be Running is hopeless: it is failed: crash",
        ),
        (
            Unreachable("cannot reach https://h: refused; is it up?"),
            "cannot reach https://h: refused; is it up?",
        ),
        (Forbidden("may not", status=403), "may not"),
    ],
)
def test_every_error_has_its_words(error: Exception, text: str) -> None:
    assert error_text(error, "Create") == text


def test_a_credential_that_is_refused_is_told_with_the_cure() -> None:
    assert "HARVESTER_KUBECONFIG_CONTENT" in error_text(Unauthorized("Unauthorized", status=401), "Create")


def test_a_fault_of_our_own_is_told_in_one_line_without_what_it_handled() -> None:
    def fails() -> None:
        raise KeyError("the-password")

    with pytest.raises(KeyError) as error:
        fails()
    text = error_text(error.value, "Create")
    assert text.startswith("an error in the driver itself, in Create: KeyError at tests.unit")
    assert "the-password" not in text


def test_secrets_are_hidden() -> None:
    error = KubeError(
        "denied: user has password hunter22 and Authorization: Bearer kubeconfig-user.abc1234567"
    )
    text = error_text(error, "Create", secrets=["hunter22", "", "a"])
    assert "hunter22" not in text
    assert "abc1234567" not in text


@pytest.mark.parametrize(
    "text",
    ["Harvester refuses Secret default/c1-pool1-cloudinit: quota", "the token is expired since 2026-01-01"],
)
def test_what_is_no_secret_is_not_hidden(text: str) -> None:
    assert error_text(KubeError(text), "Create") == text


def test_an_error_without_words_is_told_by_its_name() -> None:
    assert error_text(KubeError(""), "Stop") == "Stop failed: KubeError"


_TEXTS = st.text(max_size=3000)


@given(_TEXTS, st.sampled_from([KubeError, NotFound, Unauthorized, OSError, ValueError, InvalidDriverConfig]))
def test_any_error_is_one_short_line(text: str, kind: Any) -> None:
    said = error_text(kind(text), "Remove")
    assert said.strip()
    assert said.isprintable()
    assert len(said) <= MAX_LENGTH + 1 < 2000
    assert "not found" not in said.lower()
