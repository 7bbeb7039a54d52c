"""What `bootstrap` renders, with one bit turned somewhere: that machine does not join, and its console says why."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from tests.support.clock import NOON, run_driven

from windrow.bootstrap import DISTRIBUTIONS
from windrow.bootstrap.pki import new_cluster_secrets
from windrow.bootstrap.spec import BootstrapSpec, ClusterSecrets, Role
from windrow.emulator.guest_os.machine import machine_factory
from windrow.emulator.harvester import Harvester
from windrow.kubernetes.resources import SECRET

from .harvester_rig import a_harvester, post
from .test_guests_on_harvester import an_intent, let_pass, ready_nodes, stand_up, until_ready

WORKER = frozenset({Role.WORKER})


def turned(pattern: str, group: int = 1) -> Callable[[str], str]:
    """Turns the lowest bit of the last character of the first match's group."""

    def turn(document: str) -> str:
        found = re.search(pattern, document, re.M)
        assert found, f"nothing in the document matches {pattern!r}"
        end = found.end(group) - 1
        return document[:end] + chr(ord(document[end]) ^ 1) + document[end + 1 :]

    return turn


def moved(pattern: str) -> Callable[[str], str]:
    """Indents the first line that matches by one space more."""

    def move(document: str) -> str:
        changed = re.sub(pattern, lambda found: " " + found.group(0), document, count=1, flags=re.M)
        assert changed != document
        return changed

    return move


# For a worker and for a second server alike: where the bit is, and words of the reason.
JOINERS: dict[str, tuple[Callable[[str], str], str]] = {
    "token-password": (turned(r"^ +token: (K10.*)$"), "401 Unauthorized"),
    "token-hash": (turned(r"^ +token: (K10[0-9a-f]{20})"), "token CA hash does not match"),
    "server-address": (turned(r"^ +server: (https://[0-9.]+):9345"), "failed to get CA certs"),
    "server-port": (turned(r"^ +server: (https://[0-9.]+:9345)"), "failed to get CA certs"),
    "server-scheme": (turned(r"^ +server: (http)s"), "only https:// URLs are supported"),
    "key-token": (turned(r"^ +(token): K10"), "Unknown flag --tokeo found in config.yaml, skipping"),
    "key-server": (turned(r"^ +(server): https"), "Unknown flag --serves found in config.yaml, skipping"),
    "indentation-config": (moved(r"^ +server: https"), "failed to parse /etc/rancher/rke2/config.yaml"),
    "indentation-document": (moved(r"^  content: \|"), "Failed loading yaml blob"),
    "header": (turned(r"^(#cloud-config)"), "Unhandled non-multipart"),
    "release": (turned(r"INSTALL_RKE2_VERSION=(v[0-9.]+\+rke2)"), "no RKE2 release is called"),
}

AUTHORITIES = ("server-ca", "client-ca", "request-header-ca", "etcd/peer-ca", "etcd/server-ca")


async def power_on(harvester: Harvester, name: str, document: str) -> None:
    secret = {"metadata": {"name": f"{name}-init"}, "stringData": {"userdata": document}}
    await harvester.api.local().create(SECRET, secret, "default")
    await post(harvester, name=name, secret=f"{name}-init", memory="1Gi", cores=1)


def render(secrets: ClusterSecrets, name: str, **rest: object) -> str:
    return DISTRIBUTIONS["rke2"].render(bare(an_intent(secrets, name, **rest)))  # type: ignore[arg-type]


def bare(intent: BootstrapSpec) -> BootstrapSpec:
    """Without the cloud provider, which is not what is tried here."""
    return replace(intent, selector_config=(), guest_credential=None)


def test_no_joiner_with_one_wrong_bit_joins():
    async def story() -> None:
        async with a_harvester(machine=machine_factory()) as harvester:
            secrets = new_cluster_secrets(NOON)
            address = await stand_up(harvester, bare(an_intent(secrets, "first")))
            await until_ready(harvester, secrets, address, {"first"})
            join = f"https://{address}:9345"
            for where, (turn, _) in JOINERS.items():
                for kind, roles in (("w", WORKER), ("s", frozenset(Role))):
                    name = f"{kind}-{where}"
                    await power_on(harvester, name, turn(render(secrets, name, roles=roles, server=join)))
            await power_on(harvester, "right", render(secrets, "right", roles=WORKER, server=join))

            await until_ready(harvester, secrets, address, {"first", "right"})
            await let_pass(harvester, 300)

            assert await ready_nodes(harvester, secrets, address) == {"first", "right"}
            for where, (_, reason) in JOINERS.items():
                for kind in "ws":
                    console = "\n".join(harvester.console("default", f"{kind}-{where}"))
                    assert reason in console, f"{kind}-{where}\n{console}"

    run_driven(story())


def test_no_first_server_with_one_wrong_bit_in_an_authority_serves():
    async def story() -> None:
        async with a_harvester(machine=machine_factory()) as harvester:
            doors = set(harvester.network.listeners())
            names = {}
            for stem in AUTHORITIES:
                for half in ("crt", "key"):
                    name = f"{stem}-{half}".replace("/", "-")
                    names[name] = f"{stem}.{half}" if half == "key" else stem
                    # A character in the middle of the fourth line of its PEM text.
                    place = rf"path: \S*/tls/{stem}\.{half}\n(?:.*\n)+?.*BEGIN.*\n(?:.*\n){{1}} +([A-Za-z0-9+/]{{20}})"
                    secrets = new_cluster_secrets(NOON)
                    await power_on(harvester, name, turned(place)(render(secrets, name)))

            await let_pass(harvester, 400)

            assert set(harvester.network.listeners()) == doors
            for name, file in names.items():
                console = "\n".join(harvester.console("default", name))
                assert f"server/tls/{file}" in console or "token CA hash does not match" in console, console

    run_driven(story())
