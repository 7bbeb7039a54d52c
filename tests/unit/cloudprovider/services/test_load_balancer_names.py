"""The names of load balancers: every vector of reference 02 §3.3."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.cloudprovider.names import (
    is_load_balancer_name,
    load_balancer_name,
    sharing_label,
)
from windrow.harvester.names import is_label_value

UID = "d4b50d98-39ec-4d88-8098-36579de5db4a"
LONG = "kube-system-rke2-ingress-nginx-controller"


@pytest.mark.parametrize(
    ("cluster", "namespace", "service", "name"),
    [
        ("test", "default", "abcd", "test-default-abcd-7198d990"),
        ("1test", "default", "abcd", "a1test-default-abcd-725d6700"),
        ("", "default", "web", "a-default-web-0ffc2fd1"),
        ("test", "default-default", LONG, "test-default-default-kube-system-rke2-ingress-nginx-con5cd57013"),
        (
            "test",
            "default-default",
            "kube-system-rke2-ingress-nginx-co-abcd",
            "test-default-default-kube-system-rke2-ingress-nginx-co-88b790f1",
        ),
        ("1test", "default-default", LONG, "a1test-default-default-kube-system-rke2-ingress-nginx-c6fc0f001"),
        (
            "kubernetes",
            "default-default",
            LONG,
            "kubernetes-default-default-kube-system-rke2-ingress-ngi9255419d",
        ),
    ],
)
def test_a_load_balancer_is_called_what_the_go_program_calls_it(cluster, namespace, service, name):
    assert load_balancer_name(cluster, namespace, service, UID) == name
    assert is_load_balancer_name(name, cluster, namespace, service)


def test_a_name_of_another_service_is_recognised_as_such():
    name = load_balancer_name("test", "default", "web-front", UID)

    assert not is_load_balancer_name(name, "test", "default", "web")
    assert not is_load_balancer_name("test-default-web-front", "test", "default", "web")
    assert not is_load_balancer_name("test-default-web-", "test", "default", "web")


_NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)


@given(_NAMES, _NAMES, _NAMES, st.uuids())
def test_a_name_fits_and_belongs_to_its_service(cluster, namespace, service, uid):
    name = load_balancer_name(cluster, namespace, service, str(uid))

    assert len(name) <= 63
    assert is_load_balancer_name(name, cluster, namespace, service)


@given(_NAMES, _NAMES)
def test_a_sharing_label_is_legal_and_the_go_programs_own_wherever_that_is_legal(namespace, service):
    label = sharing_label(namespace, service)

    assert is_label_value(label)
    assert (label == f"{namespace}.{service}") == (len(namespace) + len(service) < 63)


def test_long_primaries_that_begin_alike_are_told_apart():
    assert sharing_label("n" * 63, "a" * 62 + "b") != sharing_label("n" * 63, "a" * 62 + "c")
