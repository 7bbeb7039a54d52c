"""The program `harvester-cloud-provider`: its command line, its two kubeconfigs, its lead, its end.

Runs in the guest cluster. `--cloud-config` is a whole kubeconfig for Harvester whose context names the namespace of
the VMs; the guest's own API is reached by `--kubeconfig`, KUBECONFIG, or the pod's service account.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta

from windrow.client.client import Client
from windrow.client.lease import Candidate, LeadershipLost, Terms
from windrow.client.limited import LimitedTransport
from windrow.client.retrying import RetryingTransport
from windrow.client.transport import Transport
from windrow.cloudprovider.flags import SERVICE_CONTROLLER, BadFlags, Options, parse_flags
from windrow.cloudprovider.provider import Provider
from windrow.kube.kubeconfig import Access, BadKubeconfig, ReadFile, in_cluster_access, parse_kubeconfig
from windrow.values.chance import Chance
from windrow.values.clock import Clock, pause

NAME = "cloudprovider.harvesterhci.io"
LOOK_AT_CONFIG = timedelta(minutes=1)
HELP = """\
harvester-cloud-provider keeps the nodes of a guest cluster in step with their VMs on Harvester.

  --cloud-config FILE          kubeconfig for Harvester; its context names the namespace of the VMs (required)
  --cluster-name NAME          the guest cluster's name, as its VMs are labelled
  --kubeconfig FILE            the guest cluster; default: KUBECONFIG, else the pod's service account
  --management-network NS/NAD  the Harvester network that carries node addresses
  --node-ip-cidr CIDR,CIDR     where internal addresses are, at most one range of each family
  --node-exclude-ip-ranges LIST  addresses that are no external addresses
  --controllers LIST           `*`, a name, or -name; default `*`
  --leader-elect=BOOL          default true; Lease kube-system/cloud-controller-manager
"""


async def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    read_file: ReadFile,
    dial: Callable[[Access], Transport],
    clock: Clock,
    chance: Chance,
    out: Callable[[str], None],
) -> int:
    """Run until cancelled; then the Lease is released.

    Returns 1 for a bad start and for a lost lead, and 0 when the cloud config has changed: whoever keeps the program
    running starts it anew, with the new credential.
    """
    arguments = list(argv)
    if arguments and not arguments[0].startswith("-"):
        arguments = arguments[1:]  # the program's own name
    try:
        options = parse_flags(arguments)
        if options.help:
            out(HELP)
            return 0
        host = _read_cloud_config(options, read_file)
        guest = _read_guest_access(options, env, read_file)
    except (BadFlags, BadKubeconfig) as error:
        _complain(error, out)
        return 1
    _introduce(options, host, guest, out)
    try:
        await _lead(options, env, read_file, host, guest, dial, clock, chance, out)
    except LeadershipLost as error:
        out(f"leaderelection lost: {error}")
        return 1
    out(f"{options.cloud_config} has changed; starting anew")
    return 0


async def _lead(
    options: Options,
    env: Mapping[str, str],
    read_file: ReadFile,
    host: Access,
    guest: Access,
    dial: Callable[[Access], Transport],
    clock: Clock,
    chance: Chance,
    out: Callable[[str], None],
) -> None:
    def polite(access: Access) -> Transport:
        limited = LimitedTransport(dial(access), clock, per_second=options.qps, burst=options.burst)
        return RetryingTransport(limited, clock, chance)

    to_guest, to_host = polite(guest), polite(host)
    namespace = host.namespace or "default"

    async def work() -> None:
        out(f"leading; VMs are looked for in namespace {namespace!r}")
        provider = Provider(to_guest, to_host, namespace, options, clock, chance, out)
        async with asyncio.TaskGroup() as group:
            providing = group.create_task(provider.run())
            await _wait_for_change(options.cloud_config, read_file, clock)
            providing.cancel()

    if not options.leader_elect:
        await work()
        return
    identity = f"{env.get('HOSTNAME') or 'harvester-cloud-provider'}_{chance.uid()}"
    terms = Terms(options.lease_duration, options.renew_deadline, options.retry_period)
    # The Lease is renewed past the rate limit: a burst of other calls must not cost the lead.
    candidate = Candidate(
        Client(dial(guest)), options.lease_namespace, options.lease_name, identity, clock, chance, terms
    )
    await candidate.lead(work)


async def _wait_for_change(path: str, read_file: ReadFile, clock: Clock) -> None:
    """Return when the file holds something else than now. A file that cannot be read has not changed."""
    before = read_file(path)
    while True:
        await pause(clock, LOOK_AT_CONFIG)
        with suppress(OSError):
            if read_file(path) != before:
                return


def _read_cloud_config(options: Options, read_file: ReadFile) -> Access:
    cure = "check the --cloud-config flag and the file it names"
    if not options.cloud_config:
        raise BadKubeconfig("can't init from an empty reader (io.Reader)", cure)
    try:
        text = read_file(options.cloud_config)
    except OSError as error:
        raise BadKubeconfig(
            f"couldn't open cloud provider configuration {options.cloud_config}: {error}", cure
        ) from error
    if not text.strip():
        raise BadKubeconfig(
            f"can't init from an empty reader (io.Reader): {options.cloud_config} is empty", cure
        )
    return parse_kubeconfig(text, read_file=read_file)


def _read_guest_access(options: Options, env: Mapping[str, str], read_file: ReadFile) -> Access:
    path = options.kubeconfig or env.get("KUBECONFIG", "")
    if not path:
        return in_cluster_access(env, read_file)
    try:
        return parse_kubeconfig(read_file(path), read_file=read_file)
    except OSError as error:
        raise BadKubeconfig(
            f"the guest's kubeconfig cannot be read: {error}", "correct --kubeconfig"
        ) from error


def _complain(error: Exception, out: Callable[[str], None]) -> None:
    out(f"FATAL: {NAME} failed to start")
    out(f"Error detail: {error}")
    if isinstance(error, BadFlags):
        out(
            "Hint: flags come from extraArgs in the values of the chart harvester-cloud-provider; correct them there"
        )


def _introduce(options: Options, host: Access, guest: Access, out: Callable[[str], None]) -> None:
    flags = [
        f"--cluster-name={options.cluster_name}",
        f"--management-network={options.management_network}",
        f"--node-ip-cidr={','.join(map(str, options.node_ip_cidr))}",
        f"--node-exclude-ip-ranges={','.join(map(str, options.node_exclude_ip_ranges))}",
        f"--disable-vmi-controller={str(options.disable_vmi_controller).lower()}",
        f"--disable-annotation-alpha-provided-ip-addr={str(options.ignore_provided_ip).lower()}",
    ]
    out(f"{NAME} effective configurations: {' '.join(flags)}")
    out(f"Harvester is {host.server} ({host.credential}); the guest cluster is {guest.server}")
    for warning in options.warnings:
        out(f"warning: {warning}")
    if SERVICE_CONTROLLER in options.controllers:
        out("warning: services of type LoadBalancer are not handled yet; service-lb-controller does nothing")
