"""The rke2 and k3s binaries: `server` and `agent` as processes on a simulated machine (reference/04 §2.5, §7.3-7.7).

A server without `server:` and without etcd data starts a cluster of its own; with it, it fetches the authorities from
the server named and joins etcd as a learner; with etcd data it rejoins as the member it was and ignores `server:`.
What the real program would refuse ends the process with its message on the console, and systemd starts it again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping
from datetime import timedelta
from typing import Any

from windrow.core.formats.version import Version
from windrow.emulator.guest_cluster.cluster import SAN_FLAGS, GuestCluster, ServerInstance
from windrow.emulator.guest_cluster.components.manifests import deploy_manifests, remove_addon
from windrow.emulator.guest_cluster.components.packaged import list_disabled_objects, stage_manifests
from windrow.emulator.guest_cluster.control_plane import ControlPlane
from windrow.emulator.guest_cluster.datastore.reset import (
    DIFFERENT_TOKEN,
    EtcdData,
    ResetFailed,
    check_release,
    check_token,
    open_snapshot,
    read_bootstrap,
    read_file,
    restore_objects,
)
from windrow.emulator.guest_cluster.datastore.snapshots import EtcdSnapshots
from windrow.emulator.guest_cluster.distribution.admin_files import write_admin_kubeconfig, write_tokens
from windrow.emulator.guest_cluster.distribution.distribution import BadSettings, Distribution, Role, Settings
from windrow.emulator.guest_cluster.distribution.join import (
    JoinFailed,
    JoinReply,
    join_agent,
    join_server,
    node_password,
)
from windrow.emulator.guest_cluster.distribution.pki import (
    BadAuthorities,
    CertificateAuthorities,
    load_authorities,
    write_authorities,
)
from windrow.emulator.guest_cluster.distribution.release_images import ImagesMissing, take_release_images
from windrow.emulator.guest_cluster.distribution.settings import check_settings, read_settings
from windrow.emulator.guest_cluster.distribution.tokens import BadToken, Token, hash_authorities, parse_token
from windrow.emulator.guest_cluster.etcd import (
    EtcdDowngrade,
    EtcdMember,
    JoinRefused,
    NotMember,
    etcd_version,
)
from windrow.emulator.guest_cluster.kube_vip.process import KubeVip
from windrow.emulator.guest_cluster.kubelet import (
    BadKubelet,
    Kubelet,
    node_name,
    own_addresses,
    parse_labels,
    parse_taints,
)
from windrow.emulator.guest_cluster.rotation.certificates import regenerate_file
from windrow.emulator.guest_cluster.rotation.encryption import write_encryption
from windrow.emulator.guest_cluster.rotation.expiry import ServingCertificate
from windrow.emulator.guest_cluster.server_context import ServerContext
from windrow.emulator.guest_cluster.supervisor import (
    ApiHandler,
    SharedPortHandler,
    SupervisorHandler,
    check_node_password,
)
from windrow.emulator.guest_os.binaries import read_binary
from windrow.emulator.guest_os.hardware import GuestProgram
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.shell.run import Invocation
from windrow.emulator.guest_os.systemd import NotifyReady
from windrow.emulator.kit.network import bracketed
from windrow.kubernetes.errors import NotFound
from windrow.kubernetes.handler import TlsIdentity
from windrow.kubernetes.resources import SECRET

Raw = dict[str, Any]
Clusters = dict[str, GuestCluster]


class Fatal(Exception):
    """Ends the process; the message is its last log line."""


_FATAL_ERRORS = (
    Fatal,
    BadSettings,
    BadAuthorities,
    BadToken,
    BadKubelet,
    NotMember,
    JoinFailed,
    ResetFailed,
    ImagesMissing,
    EtcdDowngrade,
)
_RESET_DONE = (
    "Managed etcd cluster membership has been reset, restart without --cluster-reset flag now. Backup and delete "
    "${datadir}/server/db on each peer etcd server and rejoin the nodes"
)


class NodeProcess:
    """One start of the process of a distribution."""

    def __init__(
        self,
        distribution: Distribution,
        call: Invocation,
        ready: NotifyReady,
        clusters: Clusters,
        programs: Mapping[str, GuestProgram],
    ) -> None:
        self.distribution = distribution
        self.guest: GuestOS = call.guest
        self.arguments = tuple(call.argv[1:])
        self.environment = dict(call.env)
        self.ready = ready
        self.clusters = clusters
        self.programs = programs
        self.version = Version.parse(read_binary(self.guest.read(call.argv[0]) or b"")[1])
        self.settings = Settings(distribution, "server")  # read when it runs
        self.disk_state: Raw = self.guest.hardware.root.state.setdefault(distribution.name, {})

    @property
    def data(self) -> EtcdData:
        return EtcdData(self.guest, self.settings, self.disk_state)

    async def run(self) -> int:
        """Run until the machine or systemd stops it, or until it fails; then its exit code."""
        role = next((one for one in self.distribution.flags if self.arguments[:1] == (one,)), None)
        if role is None:
            self.guest.log(self.distribution.name, f"{self.distribution.name} version {self.version}")
            return 0
        try:
            self._read_settings(role)
            await take_release_images(self.guest, self.settings, self.version)
            if role == "server" and self.settings.is_true("cluster-reset"):
                return await self._reset_cluster()
            await (self._run_server() if role == "server" else self._run_agent())
        except _FATAL_ERRORS as error:
            self.log(f"level=fatal: {error}")
        return 1

    def log(self, line: str) -> None:
        self.guest.log(f"{self.distribution.name}-{self.arguments[0]}", line)

    def _read_settings(self, role: Role) -> None:
        self.settings = read_settings(
            self.guest, self.distribution, role, self.arguments[1:], self.environment
        )
        for warning in self.settings.warnings:
            self.log(f"level=warning: {warning}")
        check_settings(self.guest, self.settings)
        parse_labels(self.settings)
        parse_taints(self.settings)
        self.log(f"Starting {self.distribution.name} {role} {self.version}")

    # -- server

    async def _run_server(self) -> None:
        cluster = await self._join_or_create_cluster()
        await self.guest.sleep(self.guest.delays.supervisor)
        node, address = node_name(self.guest, self.settings), self._address()
        # Those of the Node: what it was told by node-ip, else an address of each family.
        own = () if self.settings.list("node-ip") else own_addresses(self.guest)
        identity = self._take_identity(cluster, node, (address, *own))
        passwords = (cluster.server_password, cluster.agent_password)
        server = ServerInstance(
            node, address, self.settings, self.version, identity, False, asyncio.Event(), *passwords
        )
        server.log, server.guest = self.log, self.guest
        self.guest.remove(regenerate_file(self.settings.data_directory))
        write_encryption(self.guest, self.settings, cluster.encryption)
        if self.settings.runs_etcd and (cluster.etcd.is_embedded or self.settings.is_true("cluster-init")):
            server.snapshots = EtcdSnapshots(
                self.guest, cluster, server, lambda: self.disk_state.get("member", ""), self.log
            )
        try:
            port = self.settings.supervisor_port
            self._listen(address, port, self._supervisor(cluster, server))
            cluster.servers[node] = server
            self.log(f"Supervisor is listening on https://{address}:{port}")
            cluster.changed.notify()
            await self._start_datastore(cluster, server)
            await run_together(*self._server_tasks(cluster, server))
        finally:
            self._shut_down(cluster, server)

    def _take_identity(self, cluster: GuestCluster, node: str, addresses: tuple[str, ...]) -> TlsIdentity:
        """The serving certificate of the disk, or a new one where this start renews it."""
        given = (one for flag in SAN_FLAGS for one in self.settings.list(flag))
        ca, client_ca = cluster.authorities.server_ca, cluster.authorities.client_ca
        names = (node, *addresses, *given)
        kept = ServingCertificate(self.guest, self.settings.data_directory, names, ca, client_ca)
        return kept.take(self.version, lambda: cluster.issue_server_identity(node, addresses, self.settings))

    def _server_tasks(self, cluster: GuestCluster, server: ServerInstance) -> list[Coroutine[Any, Any, None]]:
        tasks: list[Coroutine[Any, Any, None]] = []
        if not self.settings.is_true("disable-agent"):
            tasks.append(self._run_kubelet(cluster))
        if self.settings.runs_etcd and cluster.etcd.is_embedded:
            tasks.append(self._watch_membership(cluster))
        if self.settings.runs_api:
            tasks.append(self._serve_api(cluster, server))
        else:
            self.ready()
        if server.snapshots is not None:
            tasks.append(server.snapshots.run())
        return tasks

    async def _join_or_create_cluster(self) -> GuestCluster:
        if self.disk_state and not self._has_data():
            self.disk_state.clear()
        self._find_moved_data()
        await self._open_restored()
        uid = self.disk_state.get("cluster")
        if uid is not None:
            cluster = self.clusters.get(uid)
            if cluster is None:
                raise Fatal("the etcd data on this disk belongs to a cluster that no longer exists")
            if cluster.etcd.is_embedded:
                self._check_bootstrap_token(cluster)
                self.log("Managed etcd cluster bootstrap already complete and initialized")
                return cluster
            if not self.settings.text("server"):
                return cluster
        if self.settings.text("server"):
            self.log("Managed etcd cluster not yet initialized")
            joined = await self._join_as_server()
            return self.clusters[joined.cluster]
        if self.settings.starts_etcd:
            self.log("Managed etcd cluster initializing")
        return self._create_cluster()

    def _find_moved_data(self) -> None:
        """The files of a member that were moved away and back are its data again."""
        member = self.data.named_member
        if member in ("", self.disk_state.get("member")):
            return
        for cluster in self.clusters.values():
            if cluster.etcd.knows(member):
                self.data.state.clear()
                self.disk_state.update(cluster=cluster.uid, member=member)

    def _has_data(self) -> bool:
        """Whether the data are still there. Snapshots lie beside them; a tombstone says that they are obsolete."""
        directory = f"{self.settings.data_directory}/server/db"
        if self.guest.is_file(f"{directory}/etcd/tombstone"):
            self.log("tombstone file has been detected, removing data dir to rejoin the cluster")
            self.guest.remove(f"{directory}/etcd")
        return self.guest.is_file(f"{directory}/state.db") or bool(self.guest.list_under(f"{directory}/etcd"))

    def _check_bootstrap_token(self, cluster: GuestCluster) -> None:
        """The server token is the key of the bootstrap data. Raises Fatal for another one."""
        text = self._own_token()
        if text and parse_token(text).password != cluster.server_password:
            raise Fatal(
                f"starting kubernetes: preparing server: failed to bootstrap cluster data: {DIFFERENT_TOKEN}"
            )

    def _own_token(self) -> str:
        """The token that this server was given, else the one that it wrote on its disk."""
        path = f"{self.settings.data_directory}/server/token"
        return self._token_text("token") or self.guest.read_text(path).strip()

    def _create_cluster(self) -> GuestCluster:
        """A new cluster with the CA files on the disk."""
        authorities = load_authorities(
            self.guest, self.distribution.name, self._tls_directory(), self.guest.now()
        )
        server = self._server_password(authorities)
        agent = self._password_of("agent-token") or server
        return self._new_cluster(authorities, server, agent)

    def _new_cluster(self, authorities: CertificateAuthorities, server: str, agent: str) -> GuestCluster:
        uid = self.guest.host.rng.uid()
        cluster = GuestCluster(
            uid,
            self.version,
            authorities,
            self.settings,
            server,
            agent,
            self.guest.host.clock,
            self.guest.host.rng,
        )
        self.clusters[uid] = cluster
        return cluster

    def _server_password(self, authorities: CertificateAuthorities) -> str:
        text = self._token_text("token")
        if not text:
            return self.guest.host.rng.uid().replace("-", "")
        token = parse_token(text)
        if token.bootstrap:
            raise Fatal(
                "failed to normalize server token; must be in format K10<CERT-HASH>::<USERNAME>:<PASSWORD> or <PASSWORD>"
            )
        if token.ca_hash:
            if not authorities.delivered:
                raise Fatal(
                    "the token carries a CA hash but this first server has no CA files and made its own: no machine could "
                    f"join with it; put the cluster's CA files into {self._tls_directory()}, or name a server to join"
                )
            found = hash_authorities(authorities.server_ca)
            if found != token.ca_hash:
                raise Fatal(
                    f"token CA hash does not match the Cluster CA certificate hash: {token.ca_hash} != {found}"
                )
        return token.password

    def _password_of(self, flag: str) -> str:
        text = self._token_text(flag)
        return parse_token(text).password if text else ""

    def _token_text(self, flag: str) -> str:
        if text := self.settings.text(flag):
            return text
        path = self.settings.text(f"{flag}-file")
        if not path:
            return ""
        content = self.guest.read(path)
        if content is None:
            raise Fatal(f"open {path}: no such file or directory")
        return content.decode("utf-8", "replace").strip()

    def _tls_directory(self) -> str:
        return f"{self.settings.data_directory}/server/tls"

    def _address(self) -> str:
        address = (
            self.settings.text("node-ip") or self.settings.text("bind-address") or self.guest.address
        ).split(",")[0]
        if not address:
            raise Fatal("no address found: unable to select an IP from the default routes")
        own = {one for addresses in self.guest.addresses.values() for one in addresses}
        for one in (address, *self.settings.list("node-ip")):
            if one not in own:
                raise Fatal(
                    f"node IP {one} not found in the host's network interfaces ({', '.join(sorted(own)) or 'none'})"
                )
        return address

    def _listen(self, address: str, port: int, handler: ApiHandler | SupervisorHandler) -> None:
        try:
            self.guest.host.network.listen(address, port, handler)
        except ValueError as error:
            raise Fatal(f"listen tcp {address}:{port}: bind: address already in use ({error})") from error

    async def _join_as_server(self) -> JoinReply:
        token = parse_token(self._token_text("token"))
        joined = await join_server(self.guest, self.distribution, self.settings.text("server"), token)
        self._compare_critical(joined)
        write_authorities(self.guest, self._tls_directory(), joined.files)
        return joined

    def _compare_critical(self, joined: JoinReply) -> None:
        """Raises Fatal unless the critical settings equal those of the cluster."""
        own = self.settings.critical()
        differing = [
            f"{flag} ({own.get(flag)} here, {value} there)"
            for flag, value in joined.critical.items()
            if own.get(flag) != value
        ]
        server = self._password_of("token")
        agent = self._password_of("agent-token") or server
        if agent != self.clusters[joined.cluster].agent_password:
            differing.append("agent-token")
        if differing:
            raise Fatal(
                "starting kubernetes: preparing server: failed to validate server configuration: critical "
                f"configuration value mismatch between servers: {', '.join(differing)}"
            )

    # -- reset

    async def _reset_cluster(self) -> int:
        """`--cluster-reset`: exits by itself. Raises what a start raises."""
        node, address, guest = node_name(self.guest, self.settings), self._address(), self.guest
        if guest.host.network.find(address, self.settings.supervisor_port) is not None:
            port = self.settings.supervisor_port
            raise Fatal(f"starting kubernetes: listen tcp :{port}: bind: address already in use")
        await guest.sleep(guest.delays.supervisor)
        if self.settings.text("cluster-reset-restore-path"):
            content = await read_file(guest, self.settings, node)
            self.data.move_aside()
            snapshot = open_snapshot(content)
            check_release(snapshot, self.settings, self.version)
            self.data.replace(snapshot)
            self.data.set_flag()
            await guest.sleep(guest.delays.etcd)
            await self._open_restored()
        else:
            await self._reset_members(node, address)
        self.log(_RESET_DONE)
        return 0

    async def _reset_members(self, node: str, address: str) -> None:
        """This member with its data becomes the whole cluster."""
        if self.guest.is_file(self.data.flag):
            raise Fatal(
                "Managed etcd cluster membership was previously reset, please remove the cluster-reset flag and start "
                f"{self.distribution.name} normally. If you need to perform another cluster reset, you must first "
                f"manually delete the {self.data.flag} file"
            )
        self._find_moved_data()
        await self._open_restored()
        cluster = self.clusters.get(self.disk_state.get("cluster", ""))
        if cluster is None or "member" not in self.disk_state:
            raise Fatal("not simulated: cluster-reset of a server without etcd data")
        self._check_bootstrap_token(cluster)
        await self.guest.sleep(self.guest.delays.etcd)
        if any(member.up for member in cluster.etcd.by_name.values()):
            objects = {entry.key: entry.raw for entry in cluster.store.snapshot()[1]}
            found = self._new_cluster(cluster.authorities, cluster.server_password, cluster.agent_password)
            await restore_objects(found, objects)
            cluster = found
        self._set_only_member(cluster, node, address)
        self.data.set_flag()

    async def _open_restored(self) -> None:
        """Bring up the state of a snapshot that lies on the disk, if the token opens it. Raises ResetFailed."""
        snapshot = self.data.unopened
        if snapshot is None:
            return
        password = parse_token(self._own_token()).password
        check_token(snapshot, password)
        authorities, agent, encryption = read_bootstrap(snapshot.bootstrap)
        cluster = self.clusters.get(snapshot.cluster)
        if cluster is None or any(member.up for member in cluster.etcd.by_name.values()):
            cluster = self._new_cluster(authorities, password, agent)
        cluster.open_bootstrap(authorities, password, agent)
        cluster.encryption = encryption
        await restore_objects(cluster, snapshot.objects)
        write_authorities(self.guest, self._tls_directory(), authorities.files)
        self._set_only_member(cluster, node_name(self.guest, self.settings), self._address())

    def _set_only_member(self, cluster: GuestCluster, node: str, address: str) -> None:
        member = EtcdMember(f"{node}-{self.guest.host.rng.uid()[:8]}", node, address)
        cluster.etcd.reset(member)
        self.data.set_member(cluster.uid, member.name)

    async def _forget_node_password(self, cluster: GuestCluster) -> None:
        """The first start after a reset: the password that the data have of this node may be of another disk."""
        await cluster.wait_usable()
        name = self.distribution.node_password_secret(node_name(self.guest, self.settings))
        with contextlib.suppress(NotFound):
            await cluster.client().delete(SECRET.ref(name, "kube-system"))

    # -- datastore

    async def _start_datastore(self, cluster: GuestCluster, server: ServerInstance) -> None:
        if cluster.etcd.is_embedded or self.settings.is_true("cluster-init"):
            if not cluster.etcd.is_embedded:
                self.log("Migrating content from sqlite to etcd")
                cluster.etcd.is_embedded = True
            if self.settings.runs_etcd:
                await self._start_etcd(cluster, server)
            return
        self.disk_state.update(cluster=cluster.uid)
        self.guest.write(f"{self.settings.data_directory}/server/db/state.db", b"SQLite (simulated)\n", 0o600)
        self.log("Kine available at unix://kine.sock")

    async def _start_etcd(self, cluster: GuestCluster, server: ServerInstance) -> None:
        """Join etcd as a voting member, or rejoin with the data on the disk."""
        await self.guest.sleep(self.guest.delays.etcd)
        name = self.disk_state.get("member")
        if name is not None:
            cluster.etcd.check_version(etcd_version(self.version))
            member = cluster.etcd.rejoin(name, server.address)
            self.log("Starting etcd for existing cluster member")
        else:
            member = EtcdMember(f"{server.node}-{self.guest.host.rng.uid()[:8]}", server.node, server.address)
            if not self.settings.text("server"):
                cluster.etcd.add_first(member)
                self.log(f"Starting etcd for new cluster, member {member.name}")
            else:
                await self._add_learner(cluster, member)
            self.disk_state.update(cluster=cluster.uid, member=member.name)
            path = f"{self.settings.data_directory}/server/db/etcd/name"
            self.guest.write(path, member.name.encode(), 0o600)
        cluster.etcd.set_version(member.name, etcd_version(self.version))
        if member.learner:
            await self.guest.sleep(self.guest.delays.learner_catch_up)
        while member.learner:
            await self.guest.sleep(self.guest.delays.learner_check)
            if member.name not in cluster.etcd.by_name:
                raise NotMember("the member has been permanently removed from the cluster")
            if cluster.etcd.promote(member.name):
                self.log(f"etcd member {member.name} was promoted and votes now")

    async def _add_learner(self, cluster: GuestCluster, member: EtcdMember) -> None:
        while True:
            try:
                cluster.etcd.add_learner(member)
            except JoinRefused as error:
                self.log(f"Waiting for other members to finish joining etcd cluster: {error}")
                await self.guest.sleep(self.guest.delays.etcd_join_retry)
                continue
            except NotMember as error:
                raise Fatal(f"etcd cluster join failed: {error}") from error
            self.log(f"Adding member {member.peer} to etcd cluster")
            return

    async def _watch_membership(self, cluster: GuestCluster) -> None:
        """Raises NotMember when this member is removed."""
        name = self.disk_state["member"]
        await cluster.changed.wait_for(lambda: name in cluster.etcd.removed)
        raise NotMember(
            "etcd: the member has been permanently removed from the cluster; the etcd data on this disk is obsolete"
        )

    def _shut_down(self, cluster: GuestCluster, server: ServerInstance) -> None:
        """Close the listeners and mark the member down, at once and in any state."""
        network = self.guest.host.network
        for port in {self.settings.api_port, self.settings.supervisor_port}:
            handler = network.find(server.address, port)
            if isinstance(handler, ApiHandler | SupervisorHandler) and handler.server is server:
                network.close(server.address, port)
        server.api_up = False
        server.stopped.set()
        if cluster.servers.get(server.node) is server:
            del cluster.servers[server.node]
        if "member" in self.disk_state:
            cluster.etcd.mark_down(self.disk_state["member"])
        cluster.changed.notify()

    # -- API

    async def _serve_api(self, cluster: GuestCluster, server: ServerInstance) -> None:
        if not cluster.etcd.has_quorum():
            self.log("Waiting for etcd: the cluster has no majority of its members")
        await cluster.changed.wait_for(cluster.etcd.has_quorum)
        await self.guest.sleep(self.guest.delays.api)
        await cluster.changed.wait_for(cluster.etcd.has_quorum)
        if not self.distribution.shares_port:
            self._listen(
                server.address, self.settings.api_port, ApiHandler(cluster, server, self._etcd_timeout())
            )
        server.api_up, cluster.last_started = True, self.version
        cluster.changed.notify()
        passwords = (cluster.server_password, cluster.agent_password)
        write_tokens(self.guest, self.settings, cluster.authorities, *passwords)
        path = write_admin_kubeconfig(self.guest, self.settings, cluster.authorities)
        self.log(f"Wrote kubeconfig {path}")
        self.log(f"Kube API server is now running on https://{server.address}:{self.settings.api_port}")
        self.ready()
        if self.distribution.has_packaged_components:
            stage_manifests(self.guest, self.settings)
            for name, objects in list_disabled_objects(self.settings).items():
                await remove_addon(cluster, name, objects)
        manifests = f"{self.settings.data_directory}/server/manifests"
        work = [deploy_manifests(self.guest, cluster, manifests)]
        if not self.settings.is_true("disable-controller-manager"):
            work.append(ControlPlane(ServerContext(self.guest, cluster, self.settings, self.programs)).run())
        await run_together(*work)

    def _supervisor(self, cluster: GuestCluster, server: ServerInstance) -> ApiHandler | SupervisorHandler:
        if self.distribution.shares_port:
            return SharedPortHandler(cluster, server, self._etcd_timeout())
        return SupervisorHandler(cluster, server)

    def _etcd_timeout(self) -> timedelta:
        return self.guest.scaled(self.guest.delays.etcd_timeout)

    # -- node

    async def _run_kubelet(self, cluster: GuestCluster) -> None:
        if self.settings.role == "server":
            if self.data.clear_flag():
                await self._forget_node_password(cluster)
            await cluster.wait_usable()
            if not await check_node_password(
                cluster, node_name(self.guest, self.settings), node_password(self.guest)
            ):
                # A server verifies its password against its own file; the Secret only makes an event.
                self.log(
                    "level=warning: Deferred node password secret validation failed: the name was used before"
                )
        vip = KubeVip(self.guest, cluster, self.settings)
        await Kubelet(
            self.guest, cluster, self.settings, self.version, self.programs, {"kube-vip": vip.run}
        ).run()

    async def _run_agent(self) -> None:
        self._address()
        token = parse_token(self._token_text("token"))
        joined = await self._join_as_agent(token)
        cluster = self.clusters[joined.cluster]
        self.disk_state["cluster"] = joined.cluster
        await self.guest.sleep(self.guest.delays.agent_start)
        self.ready()
        await self._run_kubelet(cluster)

    async def _join_as_agent(self, token: Token) -> JoinReply:
        node = node_name(self.guest, self.settings)
        while True:
            for url in self._server_urls():
                try:
                    return await join_agent(self.guest, self.distribution, url, token, node)
                except JoinFailed as error:
                    self.log(str(error))
            await self.guest.sleep(self.guest.delays.join_retry)

    def _server_urls(self) -> list[str]:
        """The configured server, then those of the agent's load balancer."""
        urls = [self.settings.text("server")]
        known = self.clusters.get(self.disk_state.get("cluster", ""))
        if known is not None:
            servers = known.servers.values()
            urls += [f"https://{bracketed(one.address)}:{one.settings.supervisor_port}" for one in servers]
        return list(dict.fromkeys(urls))


async def run_together(*work: Coroutine[Any, Any, None]) -> None:
    """Run all at once until one fails, then stop the others and raise that failure itself."""
    try:
        async with asyncio.TaskGroup() as group:
            for one in work:
                group.create_task(one)
    except BaseExceptionGroup as failures:
        raise _first_error(failures) from None


def _first_error(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    first = failures.exceptions[0]
    return _first_error(first) if isinstance(first, BaseExceptionGroup) else first
