import base64
from datetime import timedelta

import pytest
from tests.support.clock import NOON

from windrow.cloudprovider.connection.expiry import Expiry, find_expiry, render_warning
from windrow.core import pki
from windrow.core.formats.json import dumps
from windrow.kubernetes.kubeconfig import ClientConfig, ExecConfig

DAY = timedelta(days=1)


def a_token(**claims):
    middle = base64.urlsafe_b64encode(dumps(claims)).decode().rstrip("=")
    return f"e30.{middle}.c2ln"


def a_certificate(days):
    authority = pki.new_ca("ca", NOON, 1000)
    return pki.issue_certificate(*authority, common_name="me", client=True, now=NOON, lifetime=days * DAY)


def test_a_token_that_is_a_jwt_says_its_end():
    ends = NOON + 3 * DAY
    access = ClientConfig("https://h", token=a_token(exp=ends.timestamp(), iat=NOON.timestamp()))

    assert find_expiry(access) == Expiry(ends, NOON)


def test_a_client_certificate_says_its_end():
    certificate, key = a_certificate(10)
    expiry = find_expiry(ClientConfig("https://h", certificate=certificate, key=key))

    assert expiry is not None
    assert expiry.expires_at == NOON + 10 * DAY


def test_of_two_credentials_the_first_to_end_counts():
    certificate, key = a_certificate(10)
    token = a_token(exp=(NOON + DAY).timestamp())
    expiry = find_expiry(ClientConfig("https://h", token=token, certificate=certificate, key=key))

    assert expiry == Expiry(NOON + DAY)


@pytest.mark.parametrize(
    "access",
    [
        ClientConfig("https://h", token="kubeconfig-u-abc:secret"),
        ClientConfig("https://h", token="a.b.c"),
        ClientConfig("https://h", token=a_token(sub="me")),
        ClientConfig("https://h", token=a_token(exp="soon")),
        ClientConfig("https://h", token=a_token(exp=1e300)),
        ClientConfig("https://h", token="e30.WzFd.c2ln"),
        ClientConfig("https://h", certificate="no certificate", key="no key"),
        ClientConfig("https://h", token=a_token(exp=1), token_file="/token"),
        ClientConfig("https://h", exec=ExecConfig("login")),
        ClientConfig("https://h"),
    ],
)
def test_what_says_no_end_or_renews_itself_has_none(access):
    assert find_expiry(access) is None


def test_a_warning_comes_a_week_ahead_then_daily_then_hourly_and_never_stops():
    expiry = Expiry(NOON + 30 * DAY, NOON)
    told, last = [], None
    while len(told) < 40:
        last = expiry.next_warning(last)
        told.append((expiry.expires_at - last) / timedelta(hours=1))

    assert told[:7] == [168, 144, 120, 96, 72, 48, 24]
    assert told[7:10] == [23, 22, 21]
    assert told[-1] < 0


def test_a_short_lived_credential_is_not_complained_about_all_its_life():
    expiry = Expiry(NOON + timedelta(hours=3), NOON)

    assert expiry.warns_from == NOON + timedelta(hours=2)


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (5 * DAY, "in 5 days"),
        (DAY, "in 24 hours"),
        (timedelta(minutes=7), "in 7 minutes"),
        (-DAY, "expired at"),
    ],
)
def test_the_sentence_names_credential_server_time_and_cure(left, words):
    said = render_warning(ClientConfig("https://h", token="secret", user="me"), Expiry(NOON + left), NOON)

    assert words in said
    assert said.startswith("the token of user 'me' for https://h expire")
    assert "without a restart" in said
    assert "secret" not in said


@pytest.mark.parametrize("ends", [-62135596800, -1, 0, 1, 253402300799])
@pytest.mark.parametrize("began", [None, -62135596800, 253402300799])
def test_whatever_end_a_token_says_can_be_reckoned_with(ends, began):
    claims = {"exp": ends} if began is None else {"exp": ends, "iat": began}
    access = ClientConfig("https://h", token=a_token(**claims))
    expiry = find_expiry(access)

    assert (expiry is None) == (ends < 0)
    if expiry is not None:
        assert expiry.next_warning(None)
        assert expiry.next_warning(NOON) > NOON
        assert render_warning(access, expiry, NOON)
