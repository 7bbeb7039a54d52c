from windrow.core.formats.json import dumps
from windrow.kubernetes.answers.messages import certificate_error, explain
from windrow.kubernetes.errors import Forbidden, error_for
from windrow.kubernetes.kubeconfig import ClientConfig
from windrow.kubernetes.requests import Reply

ACCESS = ClientConfig("https://h:6443", token="t", user="guest")


def refusal(code, message, reason="", **details):
    body = {"kind": "Status", "code": code, "message": message, "reason": reason, "details": details}
    return Reply(code, dumps(body))


def test_a_missing_right_keeps_the_servers_words_and_details_and_gains_the_credential():
    text = 'secrets "a" is forbidden: User "guest" cannot get resource "secrets" in API group ""'

    error = error_for(explain(refusal(403, text, "Forbidden", name="a"), ACCESS))

    assert isinstance(error, Forbidden)
    assert error.message.startswith(text)
    assert "https://h:6443 accepts the token of user 'guest'" in error.message
    assert error.details == {"name": "a"}


def test_a_403_that_is_not_about_rights_is_left_alone():
    reply = refusal(403, 'pods "a" is forbidden: exceeded quota: q')

    assert explain(reply, ACCESS) is reply


def test_a_denial_by_admission_is_left_alone():
    reply = refusal(403, 'admission webhook "v" denied the request: you cannot do that')

    assert explain(reply, ACCESS) is reply


def test_a_401_page_of_a_proxy_is_explained_too():
    error = error_for(explain(Reply(401, b"<html>", "text/html"), ACCESS))

    assert error is not None
    assert "does not accept the token of user 'guest'" in error.message


def test_each_certificate_error_has_its_own_hint():
    assert "clock" in certificate_error(ACCESS, "certificate has expired")
    assert "clock" in certificate_error(ACCESS, "the certificate of 'CN=x' expired at 2026-01-01")
    assert "tls-server-name" in certificate_error(
        ACCESS, "IP address mismatch, certificate is not valid for '1.2.3.4'."
    )
    assert "tls-server-name" in certificate_error(ACCESS, "the certificate is for a, not for b")
    assert "certificate-authority-data" in certificate_error(ACCESS, "unable to get local issuer certificate")
