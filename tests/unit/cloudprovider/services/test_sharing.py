"""Who shares whose address: pure rules."""

from dataclasses import replace

import pytest

from windrow.cloudprovider import names
from windrow.cloudprovider.services.index import Index
from windrow.cloudprovider.services.readings import Service
from windrow.cloudprovider.services.sharing import (
    CannotShare,
    SharedAddress,
    find_port_conflict,
    find_sharing,
    primary_of,
    sharing_groups,
    users_of,
)
from windrow.kubernetes.resources import SERVICE

MINE = (names.FINALIZER,)
WEB = Service(
    "default", "web", "uid-web", created="1", is_load_balancer=True, finalizers=MINE, ports=(("TCP", 80),)
)


def a_secondary(name, created, port=81, *, shares=False, **rest):
    return Service(
        "default",
        name,
        f"uid-{name}",
        created=created,
        is_load_balancer=True,
        finalizers=MINE if shares else (),
        ports=(("TCP", port),),
        primary="web",
        primary_label="default.web" if shares else None,
        addresses="10.1.0.10" if shares else None,
        **rest,
    )


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("web", ("default", "web")),
        ("other/web", ("other", "web")),
        ("/web", None),
        ("web/", None),
        ("a/b/c", None),
        ("/", None),
    ],
)
def test_a_primary_is_named_with_or_without_its_namespace(text, named):
    assert primary_of(replace(WEB, primary=text)) == named


@pytest.mark.parametrize(
    ("other", "has_the_port"),
    [
        (a_secondary("elder", "1", shares=True), True),
        (a_secondary("younger", "3", shares=True), True),
        (a_secondary("elder", "1"), True),
        (a_secondary("younger", "3"), False),
        (a_secondary("a", "2"), True),  # of the same second; the name decides
        (a_secondary("z", "2"), False),
        (a_secondary("elder", "1", port=82, shares=True), False),
        (a_secondary("elder", "1", shares=True, is_deleting=True), False),
        (replace(a_secondary("elder", "1", shares=True), is_load_balancer=False), False),
        (replace(a_secondary("elder", "1", shares=True), ports=(("UDP", 81),)), False),
    ],
)
def test_of_two_who_want_a_port_one_has_it(other, has_the_port):
    one = a_secondary("one", "2")

    assert bool(find_port_conflict(one, WEB, [one, other])) == has_the_port


@pytest.mark.parametrize("ends", [True, False])
def test_no_service_joins_a_primary_that_is_to_go(ends):
    primary = replace(WEB, is_deleting=ends)
    found = find_sharing(a_secondary("one", "1"), lambda *_: primary)

    assert isinstance(found, CannotShare) == ends
    assert isinstance(found, SharedAddress) != ends


def test_a_primary_that_is_not_there_is_no_hint_to_itself():
    one = replace(a_secondary("one", "1"), primary="other/web")
    namesakes = ["default/web", "other/web"]
    found = find_sharing(one, lambda namespace, name: None, lambda name: namesakes)

    assert "other/web does not exist, but default/web does;" in found.why
    namesakes.remove("default/web")
    assert "other/web does not exist; " in find_sharing(one, lambda *_: None, lambda name: namesakes).why


def test_who_has_the_port_never_loses_it_to_who_wants_it():
    one = a_secondary("one", "2", shares=True)

    assert find_port_conflict(one, WEB, [one, a_secondary("elder", "1")]) == ""
    assert (
        find_port_conflict(a_secondary("one", "2", port=80), WEB, []) != ""
    )  # but never against the primary


@pytest.mark.parametrize(
    ("one", "uses"),
    [
        (a_secondary("one", "2", shares=True), True),
        (a_secondary("one", "2", shares=True, is_deleting=True), True),
        (replace(a_secondary("one", "2", shares=True), finalizers=(), is_deleting=True), False),
        # The Go program leaves the label on a service that is no load balancer any more.
        (replace(a_secondary("one", "2", shares=True), finalizers=(), is_load_balancer=False), False),
        (a_secondary("one", "2"), False),
        # Anybody may write the label.
        (replace(a_secondary("one", "2", shares=True), addresses=None), False),
        (replace(a_secondary("one", "2", shares=True), addresses=None, ingress=("10.1.0.10",)), True),
    ],
)
def test_an_address_is_used_by_the_service_that_shows_it(one, uses):
    assert users_of(WEB, [WEB, one]) == ((one,) if uses else ())


@pytest.mark.parametrize(
    ("shown", "held", "uses"),
    [
        ({"addresses": "9.9.9.9"}, (), False),
        ({"ingress": ("9.9.9.9",)}, (), False),
        ({"addresses": names.DHCP_PLACEHOLDER}, (), False),
        ({"addresses": "10.1.0.10"}, (), True),
        ({"ingress": ("10.1.0.11",)}, (), True),  # what the primary showed before
        ({"addresses": "10.1.0.12"}, (), False),
        ({"addresses": "10.1.0.12"}, ("10.1.0.12",), True),
        ({"addresses": names.DHCP_PLACEHOLDER}, (names.DHCP_PLACEHOLDER,), False),
        ({"addresses": "9.9.9.9", "primary": "web"}, (), True),
    ],
)
def test_who_does_not_name_the_primary_uses_its_address_only_by_showing_it(shown, held, uses):
    primary = replace(WEB, addresses=f"10.1.0.10,{names.DHCP_PLACEHOLDER}", ingress=("10.1.0.11",))
    one = replace(a_secondary("one", "2", shares=True), **{"primary": "", "addresses": None, **shown})

    assert users_of(primary, [one], held) == ((one,) if uses else ())


def test_sharers_are_known_by_label_and_by_wish_until_they_have_neither():
    sharers = Index(sharing_groups)
    wants, has = a_secondary("one", "2"), replace(a_secondary("one", "2", shares=True), primary="")
    found = []
    for before, after in [(None, wants), (wants, has), (has, replace(has, primary_label=None))]:
        sharers.update(before, after)
        found.append(sharers.get("default.web"))

    assert found == [(SERVICE.ref("one", "default"),)] * 2 + [()]


def test_who_moves_to_another_primary_counts_at_both_meanwhile():
    sharers = Index(sharing_groups)
    sharers.update(None, replace(a_secondary("one", "2", shares=True), primary="other"))

    assert sharers.get("default.web") == sharers.get("default.other") == (SERVICE.ref("one", "default"),)
