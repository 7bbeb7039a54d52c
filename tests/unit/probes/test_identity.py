from datetime import timedelta

import pytest
from tests.support.clock import NOON

from windrow.core import pki
from windrow.core.logs import line_logger
from windrow.probes.identity import BadCertificate, FileIdentity, SelfSignedIdentity


class Clock:
    def __init__(self):
        self.at = NOON

    def now(self):
        return self.at


def a_pair(name):
    authority = pki.new_ca(name, NOON, 1)
    return pki.issue_certificate(
        *authority, common_name=name, server=True, now=NOON, lifetime=timedelta(days=1)
    )


def test_a_made_up_identity_stays_until_a_month_before_its_end():
    clock = Clock()
    identity = SelfSignedIdentity(clock, "localhost")
    first = identity.current()
    clock.at += timedelta(days=334)
    later = identity.current()
    clock.at += timedelta(days=2)
    renewed = identity.current()

    assert later == first
    assert renewed != first
    assert pki.matches_key(renewed.chain, renewed.key)
    assert pki.read_certificate(renewed.chain).not_after > clock.at + timedelta(days=300)
    assert renewed.key not in repr(renewed)


class Files(dict):
    def read(self, path):
        if path not in self:
            raise FileNotFoundError(path)
        said = self[path]
        return said.decode() if isinstance(said, bytes) else said


def test_renewed_files_are_shown_and_broken_ones_are_told_once():
    said = []
    files = Files(zip(("crt", "key"), a_pair("first"), strict=True))
    identity = FileIdentity("crt", "key", files.read, line_logger("harvester-cloud-provider", said.append))
    first = identity.current()
    files["crt"], key = a_pair("second")
    halfway = identity.current(), identity.current()
    files["key"] = key
    second = identity.current()
    del files["crt"]
    missing = identity.current()
    files["crt"] = b"0\x82\x01\xff"

    assert halfway == (first, first)
    assert second.chain != first.chain
    assert missing == identity.current() == second
    assert len(said) == 3
    assert "private key key is not that of crt" in said[0]
    assert "unable to load server certificate: crt" in said[1]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, "unable to load server certificate: crt; correct the path"),
        ({"crt": b"0\x82\x01\xff", "key": "y"}, "from crt and key: one of them is no text; give both as PEM"),
        ({"crt": "x", "key": "y"}, "from crt and key: wanted certificates in PEM form"),
        ({"crt": a_pair("a")[0], "key": a_pair("b")[1]}, "give a certificate and its own key"),
    ],
)
def test_files_that_cannot_be_used_at_the_start_are_an_error(files, words):
    with pytest.raises(BadCertificate, match=words):
        FileIdentity("crt", "key", Files(files).read, print).current()
