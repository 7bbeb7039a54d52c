"""The rke2 binary: `rke2 server` and `rke2 agent` as processes on a simulated machine (reference/04 §2.5, §7.3-7.7).

A server without `server:` and without etcd data starts a cluster of its own; with it, it fetches the authorities from
the server named and joins etcd as a learner; with etcd data it comes back as the member it was and ignores `server:`.
Whatever a real process would refuse ends the process with its words on the console, and systemd starts it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from datetime import timedelta
from typing import Any

from windrow.core.version import Version
from windrow.emulator.guests.authorities import (
    Authorities,
    BadAuthorities,
    load_authorities,
    write_authorities,
)
from windrow.emulator.guests.box import Box
from windrow.emulator.guests.cluster import API_PORT, SUPERVISOR_PORT, GuestCluster, Seat
from windrow.emulator.guests.controlplane import ControlPlane, deploy_manifests
from windrow.emulator.guests.etcd import JoinRefused, Member, NotMember
from windrow.emulator.guests.hardware import Program
from windrow.emulator.guests.joining import Joined, NotJoined, Refused, join_agent, join_server, node_password
from windrow.emulator.guests.kube_vip import KubeVip
from windrow.emulator.guests.kubelet import BadKubelet, Kubelet, node_name, parse_labels, parse_taints
from windrow.emulator.guests.settings import BadSettings, Settings, read_settings
from windrow.emulator.guests.shell import Call
from windrow.emulator.guests.supervisor import ApiDoor, SupervisorDoor, check_node_password
from windrow.emulator.guests.systemd import BINARY, Ready
from windrow.emulator.guests.tokens import BadToken, Token, hash_authorities, parse_token

Raw = dict[str, Any]
Clusters = dict[str, GuestCluster]


class Fatal(Exception):
    """The process ends; the message is its last line."""


_FATAL = (Fatal, BadSettings, BadAuthorities, BadToken, BadKubelet, NotMember, NotJoined, Refused)


class Rke2:
    """One start of the rke2 process."""

    def __init__(self, call: Call, ready: Ready, clusters: Clusters, programs: Mapping[str, Program]) -> None:
        self.box: Box = call.box
        self.arguments = tuple(call.argv[1:])
        self.ready = ready
        self.clusters = clusters
        self.programs = programs
        words = (self.box.read(call.argv[0]) or b"")[len(BINARY) :].split()
        self.version = Version.parse(words[1].decode())
        self.memory: Raw = self.box.hardware.root.state.setdefault("rke2", {})

    async def run(self) -> int:
        """Run until the machine or systemd stops it, or until it fails; then its exit code."""
        match self.arguments[:1]:
            case ("server",):
                work = self._server
            case ("agent",):
                work = self._agent
            case _:
                self.box.say("rke2", f"rke2 version {self.version}")
                return 0
        try:
            await work()
        except _FATAL as error:
            self.say(f"level=fatal: {error}")
        return 1

    def say(self, line: str) -> None:
        self.box.say(f"rke2-{self.arguments[0]}", line)

    def _start(self, settings: Settings) -> None:
        parse_labels(settings)
        parse_taints(settings)
        for warning in settings.warnings:
            self.say(f"level=warning: {warning}")
        self.say(f"Starting rke2 {settings.role} {self.version}")

    # -- server

    async def _server(self) -> None:
        settings = read_settings(self.box, "server", self.arguments[1:])
        self._start(settings)
        cluster = await self._cluster(settings)
        await self.box.pause(self.box.delays.supervisor)
        node, address = node_name(self.box, settings), self._address(settings)
        identity = cluster.server_identity(node, address, settings)
        seat = Seat(node, address, settings.runs_api, settings, self.version, identity)
        try:
            self._open(address, SUPERVISOR_PORT, SupervisorDoor(cluster, seat))
            cluster.seats[node] = seat
            self.say(f"Supervisor is listening on https://{address}:{SUPERVISOR_PORT}")
            cluster.pulse.tell()
            if settings.runs_etcd:
                await self._etcd(cluster, settings, seat)
            await together(*self._parts(cluster, settings, seat))
        finally:
            self._leave(cluster, seat)

    def _parts(
        self, cluster: GuestCluster, settings: Settings, seat: Seat
    ) -> list[Coroutine[Any, Any, None]]:
        parts = [self._kubelet(cluster, settings), KubeVip(self.box, cluster, settings).run()]
        if settings.runs_etcd:
            parts.append(self._stay_member(cluster))
        if settings.runs_api:
            parts.append(self._serve_api(cluster, settings, seat))
        else:
            self.ready()
        return parts

    async def _cluster(self, settings: Settings) -> GuestCluster:
        uid = self.memory.get("cluster")
        if uid is not None:
            cluster = self.clusters.get(uid)
            if cluster is None:
                raise Fatal("the etcd data on this disk belongs to a cluster that no longer exists")
            self.say("Managed etcd cluster bootstrap already complete and initialized")
            return cluster
        if settings.text("server"):
            joined = await self._join_as_server(settings)
            return self.clusters[joined.cluster]
        self.say("Managed etcd cluster initializing")
        return self._found_cluster(settings)

    def _found_cluster(self, settings: Settings) -> GuestCluster:
        """A new cluster, of the authorities on the disk."""
        authorities = load_authorities(self.box, self._tls(settings), self.box.now())
        server = self._server_password(settings, authorities)
        agent = self._password_of(settings, "agent-token") or server
        uid = self.box.wires.rng.uid()
        cluster = GuestCluster(
            uid,
            self.version,
            authorities,
            settings,
            server,
            agent,
            self.box.wires.clock,
            self.box.wires.rng,
        )
        self.clusters[uid] = cluster
        return cluster

    def _server_password(self, settings: Settings, authorities: Authorities) -> str:
        text = self._token_text(settings, "token")
        if not text:
            return self.box.wires.rng.uid().replace("-", "")
        token = parse_token(text)
        if token.bootstrap:
            raise Fatal(
                "failed to normalize server token; must be in format K10<CERT-HASH>::<USERNAME>:<PASSWORD> or <PASSWORD>"
            )
        if token.ca_hash:
            if not authorities.delivered:
                raise Fatal(
                    "the token carries a CA hash but this first server has no CA files and made its own: nobody could "
                    f"join with it; put the cluster's CA files into {self._tls(settings)}, or name a server to join"
                )
            found = hash_authorities(authorities.server_ca)
            if found != token.ca_hash:
                raise Fatal(
                    f"token CA hash does not match the Cluster CA certificate hash: {token.ca_hash} != {found}"
                )
        return token.password

    def _password_of(self, settings: Settings, flag: str) -> str:
        text = self._token_text(settings, flag)
        return parse_token(text).password if text else ""

    def _token_text(self, settings: Settings, flag: str) -> str:
        if text := settings.text(flag):
            return text
        path = settings.text(f"{flag}-file")
        if not path:
            return ""
        content = self.box.read(path)
        if content is None:
            raise Fatal(f"open {path}: no such file or directory")
        return content.decode("utf-8", "replace").strip()

    def _tls(self, settings: Settings) -> str:
        return f"{settings.data_directory}/server/tls"

    def _address(self, settings: Settings) -> str:
        address = (settings.text("node-ip") or settings.text("bind-address") or self.box.address).split(",")[
            0
        ]
        if not address:
            raise Fatal("no address found: unable to select an IP from the default routes")
        own = {one for addresses in self.box.addresses.values() for one in addresses}
        if address not in own:
            raise Fatal(
                f"node IP {address} not found in the host's network interfaces ({', '.join(sorted(own)) or 'none'})"
            )
        return address

    def _open(self, address: str, port: int, door: ApiDoor | SupervisorDoor) -> None:
        try:
            self.box.wires.rack.open(address, port, door)
        except ValueError as error:
            raise Fatal(f"listen tcp {address}:{port}: bind: address already in use ({error})") from error

    async def _join_as_server(self, settings: Settings) -> Joined:
        token = parse_token(self._token_text(settings, "token"))
        joined = await join_server(self.box, settings.text("server"), token)
        self._compare(settings, joined)
        write_authorities(self.box, self._tls(settings), joined.files)
        return joined

    def _compare(self, settings: Settings, joined: Joined) -> None:
        """Values that must be equal on all servers."""
        own = settings.critical()
        differing = [
            f"{flag} ({own.get(flag)} here, {value} there)"
            for flag, value in joined.critical.items()
            if own.get(flag) != value
        ]
        server = self._password_of(settings, "token")
        agent = self._password_of(settings, "agent-token") or server
        if agent != self.clusters[joined.cluster].agent_password:
            differing.append("agent-token")
        if differing:
            raise Fatal(
                "starting kubernetes: preparing server: failed to validate server configuration: critical "
                f"configuration value mismatch between servers: {', '.join(differing)}"
            )

    # -- etcd

    async def _etcd(self, cluster: GuestCluster, settings: Settings, seat: Seat) -> None:
        """Become, or come back as, a voting member."""
        await self.box.pause(self.box.delays.etcd)
        name = self.memory.get("member")
        if name is not None:
            member = cluster.members.rejoin(name, seat.address)
            self.say("Starting etcd for existing cluster member")
        else:
            member = Member(f"{seat.node}-{self.box.wires.rng.uid()[:8]}", seat.node, seat.address)
            if not settings.text("server"):
                cluster.members.start(member)
                self.say(f"Starting etcd for new cluster, member {member.name}")
            else:
                await self._add_learner(cluster, member)
            self.memory.update(cluster=cluster.uid, member=member.name)
        if member.learner:
            await self.box.pause(self.box.delays.learner_catch_up)
        while member.learner:
            await self.box.pause(self.box.delays.learner_check)
            if member.name not in cluster.members.by_name:
                raise NotMember("the member has been permanently removed from the cluster")
            if cluster.members.promote(member.name):
                self.say(f"etcd member {member.name} was promoted and votes now")

    async def _add_learner(self, cluster: GuestCluster, member: Member) -> None:
        while True:
            try:
                cluster.members.add_learner(member)
            except JoinRefused as error:
                self.say(f"Waiting for other members to finish joining etcd cluster: {error}")
                await self.box.pause(self.box.delays.etcd_join_retry)
                continue
            except NotMember as error:
                raise Fatal(f"etcd cluster join failed: {error}") from error
            self.say(f"Adding member {member.peer} to etcd cluster")
            return

    async def _stay_member(self, cluster: GuestCluster) -> None:
        """Fails when somebody removes this member."""
        name = self.memory["member"]
        await cluster.pulse.until(lambda: name in cluster.members.removed)
        raise NotMember(
            "etcd: the member has been permanently removed from the cluster; this server's data is of no more use"
        )

    def _leave(self, cluster: GuestCluster, seat: Seat) -> None:
        """Let go of doors and membership at once; may be called in any state."""
        rack = self.box.wires.rack
        for port in (API_PORT, SUPERVISOR_PORT):
            door = rack.find(seat.address, port)
            if isinstance(door, ApiDoor | SupervisorDoor) and door.seat is seat:
                rack.close(seat.address, port)
        seat.api_up = False
        seat.gone.set()
        if cluster.seats.get(seat.node) is seat:
            del cluster.seats[seat.node]
        if "member" in self.memory:
            cluster.members.went_down(self.memory["member"])
        cluster.pulse.tell()

    # -- API

    async def _serve_api(self, cluster: GuestCluster, settings: Settings, seat: Seat) -> None:
        if not cluster.members.has_quorum():
            self.say("Waiting for etcd: the cluster has no majority of its members")
        await cluster.pulse.until(cluster.members.has_quorum)
        await self.box.pause(self.box.delays.api)
        await cluster.pulse.until(cluster.members.has_quorum)
        timeout = timedelta(seconds=self.box.delays.etcd_timeout / self.box.wires.speed)
        self._open(seat.address, API_PORT, ApiDoor(cluster, seat, timeout))
        seat.api_up = True
        cluster.pulse.tell()
        self.say(f"Kube API server is now running on https://{seat.address}:{API_PORT}")
        self.ready()
        manifests = f"{settings.data_directory}/server/manifests"
        work = [deploy_manifests(self.box, cluster, manifests)]
        if not settings.yes("disable-controller-manager"):
            work.append(ControlPlane(self.box, cluster, settings, self.programs).run())
        await together(*work)

    # -- node

    async def _kubelet(self, cluster: GuestCluster, settings: Settings) -> None:
        if settings.role == "server":
            await cluster.usable()
            if not await check_node_password(cluster, node_name(self.box, settings), node_password(self.box)):
                # A server verifies its password against its own file; the Secret only makes an event.
                self.say(
                    "level=warning: Deferred node password secret validation failed: the name was used before"
                )
        await Kubelet(self.box, cluster, settings, self.version, self.programs).run()

    async def _agent(self) -> None:
        settings = read_settings(self.box, "agent", self.arguments[1:])
        self._start(settings)
        self._address(settings)
        token = parse_token(self._token_text(settings, "token"))
        joined = await self._join_as_agent(settings, token)
        cluster = self.clusters[joined.cluster]
        if self.version.line > cluster.oldest_api.line:
            raise Fatal(
                f"kubelet {self.version} is newer than the cluster's kube-apiserver {cluster.oldest_api}; "
                "that skew is not supported: install the servers' version or an older one"
            )
        self.memory["cluster"] = joined.cluster
        await self.box.pause(self.box.delays.agent_start)
        self.ready()
        await together(self._kubelet(cluster, settings), KubeVip(self.box, cluster, settings).run())

    async def _join_as_agent(self, settings: Settings, token: Token) -> Joined:
        node = node_name(self.box, settings)
        while True:
            for url in self._servers(settings):
                try:
                    return await join_agent(self.box, url, token, node)
                except NotJoined as error:
                    self.say(str(error))
            await self.box.pause(self.box.delays.join_retry)

    def _servers(self, settings: Settings) -> list[str]:
        """The configured server, then those that the agent's load balancer remembers."""
        urls = [settings.text("server")]
        known = self.clusters.get(self.memory.get("cluster", ""))
        if known is not None:
            urls += [f"https://{seat.address}:{SUPERVISOR_PORT}" for seat in known.seats.values()]
        return list(dict.fromkeys(urls))


async def together(*work: Coroutine[Any, Any, None]) -> None:
    """Run all at once until one fails, then stop the others and raise that failure itself."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except BaseExceptionGroup as failures:
        raise _first(failures) from None


def _first(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    first = failures.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
