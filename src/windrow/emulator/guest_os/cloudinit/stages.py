"""cloud-init's stages on a booting machine: local, network, config, final.

Most modules run once for each instance id, which the disk remembers: a restart, or user data that was rewritten in the
meantime, does not run them again. Boot hooks, `bootcmd` and the host name are applied on every boot.
"""

from __future__ import annotations

import posixpath
from ipaddress import IPv4Interface, IPv6Interface, ip_interface

from windrow.emulator.guest_os.cloudinit.modules import (
    WriteFile,
    list_commands,
    list_packages,
    list_user_accounts,
    list_write_files,
    read_hostname,
)
from windrow.emulator.guest_os.cloudinit.network_data import InterfaceConfig, read_network_data
from windrow.emulator.guest_os.cloudinit.user_data import UserData, read_user_data
from windrow.emulator.guest_os.hardware import Nic
from windrow.emulator.guest_os.operating_system import GuestOS
from windrow.emulator.guest_os.packages import install_packages
from windrow.emulator.guest_os.system import add_user, has_user
from windrow.emulator.guest_os.systemd import Systemd


class CloudInitRun:
    """One run of cloud-init."""

    def __init__(self, guest: GuestOS, systemd: Systemd) -> None:
        self.guest = guest
        self.systemd = systemd
        hardware = guest.hardware
        # KubeVirt's metadata names the guest after the part before the VM's first dot.
        self.metadata_hostname = hardware.name.partition(".")[0]
        variables = {
            "v1.local_hostname": self.metadata_hostname,
            "v1.instance_id": hardware.vm_uid,
            "v1.cloud_name": "nocloud",
            "ds.meta_data.local_hostname": self.metadata_hostname,
            "ds.meta_data.instance_id": hardware.vm_uid,
        }
        self.data: UserData = read_user_data(hardware.user_data, variables)
        state = hardware.root.state
        self.is_first_boot = state.get("instance id") != hardware.vm_uid
        if self.is_first_boot:
            state["instance id"], state["modules done"] = hardware.vm_uid, set()
            state["network data"] = hardware.network_data  # later boots use the network data of the first one

    def _is_first_run(self, module: str) -> bool:
        """Whether a module that runs once per instance has not run yet. A machine that loses power in it does not repeat it,
        as the real one's semaphores have it."""
        done: set[str] = self.guest.hardware.root.state["modules done"]
        fresh = module not in done
        done.add(module)
        return fresh

    def warn(self, line: str) -> None:
        self.guest.console(f"cloud-init[WARNING]: {line}")

    # -- stages

    async def local(self) -> None:
        """Find the data; set the host name, which DHCP sends along."""
        await self.guest.sleep(self.guest.delays.cloud_init_local)
        kind = (
            "first boot of this instance"
            if self.is_first_boot
            else "known instance, modules per instance are not run again"
        )
        self.guest.console(f"cloud-init: datasource NoCloud, instance {self.guest.hardware.vm_uid} ({kind})")
        for warning in self.data.warnings:
            self.warn(warning)
        wanted = read_hostname(self.data.config)
        if self.is_first_boot or wanted:
            self.guest.write("/etc/hostname", f"{wanted or self.metadata_hostname}\n".encode())

    async def network(self) -> None:
        """Configure the interfaces by the network data; without any, DHCP on the first."""
        network = read_network_data(self.guest.hardware.root.state["network data"])
        for warning in network.warnings:
            self.warn(warning)
        nics = self.guest.hardware.nics
        if network.interfaces is None:
            if nics:
                await self._dhcp(nics[0])
                self._autoconfigure(nics[0])
        else:
            for interface in network.interfaces:
                nic = self._find_nic(interface)
                if nic is None:
                    named = (
                        f"with MAC address {interface.mac}" if interface.mac else f"named {interface.name!r}"
                    )
                    self.warn(f"network data is for an interface {named}, which this machine does not have")
                    continue
                await self._configure(nic, interface)
        if not self.guest.address:
            self.guest.console(
                "Failed to start Wait for Network to be Configured: no interface has an address."
            )

    async def boot_commands(self) -> None:
        """The end of the network stage: it is over before network-online.target, and so before the services that wait for that."""
        shell = self.systemd.shell("cloud-init", {"INSTANCE_ID": self.guest.hardware.vm_uid})
        for hook in self.data.boothooks:
            await shell.child().run(hook)
        await self._run_commands("bootcmd")

    async def config(self) -> None:
        """What is done once: files, accounts."""
        await self.guest.sleep(self.guest.delays.cloud_init_config)
        if not self._is_first_run("write-files"):
            return
        files, warnings = list_write_files(self.data.config)
        for warning in warnings:
            self.warn(warning)
        self._write([one for one in files if not one.defer])
        for account in list_user_accounts(self.data.config):
            if account.name != "default":
                add_user(self.guest, account.name)
            if account.keys:
                home = "/root" if account.name == "root" else f"/home/{account.name}"
                self.guest.write(
                    f"{home}/.ssh/authorized_keys", ("\n".join(account.keys) + "\n").encode(), 0o600
                )

    async def final(self) -> None:
        """Packages, deferred files, run commands, user scripts: once. A failing one does not stop the next."""
        if self._is_first_run("packages"):
            await self._install()
        if self._is_first_run("write-files-deferred"):
            self._write([one for one in list_write_files(self.data.config)[0] if one.defer])
        if self._is_first_run("runcmd"):
            await self._run_commands("runcmd")
        if self._is_first_run("scripts-user"):
            await self._run_scripts()
        self.guest.console("cloud-init: finished")

    # -- parts

    async def _run_scripts(self) -> None:
        for number, script in enumerate(self.data.scripts, start=1):
            path = f"/var/lib/cloud/instance/scripts/part-{number:03d}"
            self.guest.write(path, script.encode(), 0o700)
            code = await self.systemd.shell("cloud-init").run([path])
            if code:
                self.warn(f"Failed running {path} [{code}]")

    async def _install(self) -> None:
        config = self.data.config
        names = list_packages(config)
        if (config.get("package_update") or names) and self.guest.address:
            await self.guest.sleep(self.guest.delays.package_update)
        if names and await install_packages(self.guest, names, self.warn):
            self.guest.console(f"cloud-init: installed {', '.join(names)}")

    def _write(self, files: list[WriteFile]) -> None:
        for one in files:
            user = one.owner.split(":", 1)[0]
            if not has_user(self.guest, user):
                self.warn(
                    f"Running module write_files failed at {one.path}: Unknown user or group: {user!r}; "
                    "the files after it are not written"
                )
                return
            self.guest.make_directory(posixpath.dirname(one.path))
            if one.append:
                self.guest.append(one.path, one.content)
            else:
                self.guest.write(one.path, one.content, one.mode, one.owner)

    async def _run_commands(self, key: str) -> None:
        """Commands of one list make one script: a failing one does not stop the next, an `exit` does."""
        commands, warnings = list_commands(self.data.config, key)
        for warning in warnings:
            self.warn(warning)
        if not commands:
            return
        lines = [one if isinstance(one, str) else " ".join(_quoted(word) for word in one) for one in commands]
        shell = self.systemd.shell("cloud-init", {"INSTANCE_ID": self.guest.hardware.vm_uid})
        code = await shell.run("\n".join(lines) + "\n")
        if code:
            self.warn(f"Failed to run {key}: exit code {code} of its last command")

    # -- network

    def _find_nic(self, interface: InterfaceConfig) -> Nic | None:
        nics = self.guest.hardware.nics
        if interface.mac:
            return next((nic for nic in nics if nic.mac.lower() == interface.mac), None)
        for place, nic in enumerate(nics):
            # Predictable names on q35, old names, and the name that KubeVirt gives the NIC.
            if interface.name in (f"enp{place + 1}s0", f"eth{place}", nic.name):
                return nic
        if "*" in interface.name and nics:
            return nics[0]
        return None

    async def _configure(self, nic: Nic, interface: InterfaceConfig) -> None:
        static = []
        for one in interface.addresses:
            try:
                wanted = ip_interface(one)
            except ValueError:
                self.warn(f"network data for {nic.name}: {one!r} is not an address")
                continue
            if not self._has_duplicate(nic, wanted):
                static.append(one)
                self.guest.add_subnet(nic.name, str(wanted))
        if static:
            self.guest.addresses[nic.name] = tuple(str(ip_interface(one).ip) for one in static)
            self.guest.console(f"network: {nic.name} has {', '.join(static)}")
        elif interface.dhcp:
            await self._dhcp(nic)
        self._autoconfigure(nic)

    def _has_duplicate(self, nic: Nic, wanted: IPv4Interface | IPv6Interface) -> bool:
        """Whether the address stays unused since another machine has it: in IPv6 duplicate address detection keeps the kernel
        from it; IPv4 has none by default, so that both have it."""
        owner = self.guest.host.use(nic, str(wanted.ip))
        if owner and wanted.version == 6:
            self.guest.console(
                f"IPv6: {nic.name}: IPv6 duplicate address {wanted.ip} used by {owner} detected!"
            )
            return True
        if owner:
            self.guest.console(f"network: {nic.name}: {wanted.ip} is in use by {owner}, too")
        return False

    async def _dhcp(self, nic: Nic) -> None:
        await self.guest.sleep(self.guest.delays.dhcp)
        lease = await self.guest.host.lease(nic, self.guest.hostname)
        if lease is None:
            self.guest.console(f"network: no DHCP answer on {nic.name} ({nic.network or 'pod network'})")
            return
        self.guest.addresses[nic.name] = (lease.address,)
        self.guest.add_subnet(nic.name, f"{lease.address}/{lease.prefix}")
        self.guest.console(f"network: {nic.name} has {lease.address}/{lease.prefix} by DHCP")

    def _autoconfigure(self, nic: Nic) -> None:
        """Beside other addresses: cards accept what a router advertises unless they are told not to."""
        if address := self.guest.host.autoconfigure(nic):
            self.guest.addresses[nic.name] = (*self.guest.addresses.get(nic.name, ()), address)
            self.guest.add_subnet(nic.name, f"{address}/64")
            self.guest.console(f"network: {nic.name} has {address}/64 by the router's advertisement")


def _quoted(word: str) -> str:
    return "'" + word.replace("'", "'\\''") + "'"
