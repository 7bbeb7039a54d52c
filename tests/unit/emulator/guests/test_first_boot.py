"""What a machine does with its cloud-init on its first boot, and what it leaves alone later."""

from __future__ import annotations

from tests.support.clock import run_driven

from windrow.core.formats.yaml import dump

from .testbed import ClusterFixture, Kubectl, MachineTestbed, a_testbed


def cloud_config(**keys: object) -> str:
    return "#cloud-config\n" + dump(keys)


async def booted(testbed: MachineTestbed, name: str = "one") -> None:
    await testbed.wait_for(lambda: testbed.hosts[name].logged("login:"))


def test_files_packages_and_commands_come_in_cloud_inits_order():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            document = cloud_config(
                hostname="one",
                bootcmd=["echo bootcmd sees $(cat /etc/a)"],
                packages=["jq"],
                write_files=[
                    {"path": "/etc/a", "content": "a file"},
                    {"path": "/etc/b", "content": "deferred", "defer": True},
                    {"path": "/etc/a", "content": " and more", "append": True},
                ],
                runcmd=["echo runcmd sees $(cat /etc/a) $(cat /etc/b)", ["echo", "no $expansion"]],
            )
            host = testbed.power_on("one", document)
            await booted(testbed)

            assert host.logged("cat: /etc/a: No such file or directory"), (
                "boot commands run before files are written"
            )
            assert host.logged("runcmd sees a file and more deferred")
            assert host.logged("no $expansion")
            assert host.logged("installed jq")

    run_driven(scenario())


def test_a_second_boot_runs_boot_commands_only():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            document = cloud_config(bootcmd=["echo every boot"], runcmd=["echo once > /etc/once", "echo ran"])
            host = testbed.power_on("one", document)
            await booted(testbed)
            await testbed.cut_power("one")
            host.lines.clear()

            testbed.power_on("one")
            await booted(testbed)

            assert host.logged("every boot")
            assert not host.logged("ran")
            assert testbed.disks["one"].files["/etc/once"].content == b"once\n"

    run_driven(scenario())


def test_rewritten_user_data_is_not_applied_again_but_its_host_name_is():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            files = [{"path": "/etc/secret", "content": "old"}]
            testbed.power_on("one", cloud_config(hostname="one", write_files=files))
            await booted(testbed)
            await testbed.cut_power("one")
            testbed.hosts["one"].lines.clear()

            files = [{"path": "/etc/secret", "content": "new"}]
            testbed.power_on("one", cloud_config(hostname="uno", write_files=files, runcmd=["echo applied"]))
            await booted(testbed)

            assert testbed.disks["one"].files["/etc/secret"].content == b"old"
            assert testbed.disks["one"].files["/etc/hostname"].content == b"uno\n"
            assert not testbed.hosts["one"].logged("applied")

    run_driven(scenario())


def test_a_node_whose_user_data_was_scrubbed_restarts():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            testbed.power_on("one", cluster.first("one"))
            await testbed.wait_for(kubectl.ready)
            await testbed.cut_power("one")

            testbed.power_on("one", "#cloud-config\nhostname: one\n")

            await testbed.wait_for(kubectl.ready)
            assert testbed.hosts["one"].report is not None

    run_driven(scenario())


def test_network_data_gives_static_addresses_by_mac():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            network = dump(
                {
                    "version": 2,
                    "ethernets": {
                        "x": {"match": {"macaddress": "52:54:00:00:00:00"}, "addresses": ["10.0.0.55/24"]}
                    },
                }
            )
            host = testbed.power_on("one", "#cloud-config\n{}\n", network_data=network, agent=True)
            await booted(testbed)
            await testbed.sleep(5)

            assert host.report is not None
            assert host.report.addresses == {"nic-0": ("10.0.0.55",)}
            assert testbed.leases == {}

    run_driven(scenario())


def test_an_address_of_another_machine_is_told_and_in_ipv6_not_used():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            testbed.static |= {"10.0.0.55": "02:00:00:00:00:99", "fd00::55": "02:00:00:00:00:99"}
            addresses = ["10.0.0.55/24", "fd00::55/64", "fd00::56/64"]
            network = dump({"version": 2, "ethernets": {"enp1s0": {"addresses": addresses}}})
            host = testbed.power_on("one", "#cloud-config\n{}\n", network_data=network, agent=True)
            await booted(testbed)
            await testbed.sleep(5)

            assert host.report is not None
            assert host.report.addresses == {"nic-0": ("10.0.0.55", "fd00::56")}
            said = "\n".join(host.lines)
            assert "IPv6 duplicate address fd00::55 used by 02:00:00:00:00:99 detected!" in said
            assert "10.0.0.55 is in use by 02:00:00:00:00:99, too" in said

    run_driven(scenario())


def test_network_data_for_another_nic_has_no_effect():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            network = dump({"version": 2, "ethernets": {"ens33": {"dhcp4": True}}})
            host = testbed.power_on("one", cluster.first("one"), network_data=network)
            await testbed.sleep(300)

            assert host.logged("for an interface named 'ens33', which this machine does not have")
            assert host.logged("the machine has no network")
            assert testbed.network.listeners() == {}

    run_driven(scenario())


def test_without_dhcp_nothing_can_be_installed():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            testbed.dhcp = False
            host = testbed.power_on("one", ClusterFixture().first("one"))
            await testbed.sleep(120)

            assert host.logged("no DHCP answer on nic-0")
            assert host.logged("Could not resolve host: get.rke2.io")
            assert host.report is None

    run_driven(scenario())


def test_an_agent_that_was_installed_but_not_started_is_silent_until_the_next_boot():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            host = testbed.power_on("one", cloud_config(packages=["qemu-guest-agent"]))
            await booted(testbed)
            await testbed.sleep(30)
            assert host.report is None

            await testbed.cut_power("one")
            host = testbed.power_on("one")
            await testbed.wait_for(lambda: host.report is not None)

    run_driven(scenario())


def test_an_image_with_the_agent_reports_soon_after_boot():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            host = testbed.power_on("one", cloud_config(hostname="uno"), agent=True)

            assert await testbed.wait_for(lambda: host.report is not None) < 15
            assert host.report is not None
            assert host.report.hostname == "uno"

    run_driven(scenario())


def test_speed_divides_every_delay():
    async def scenario(time_scale: float) -> float:
        async with a_testbed(time_scale=time_scale) as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            start = testbed.clock.now()
            testbed.power_on("one", cluster.first("one"))
            while not await kubectl.ready():
                await testbed.sleep(0.01)
            return (testbed.clock.now() - start).total_seconds()

    slow, fast = run_driven(scenario(1)), run_driven(scenario(20))

    assert abs(slow - 20 * fast) < 1


def test_a_machine_may_switch_itself_off_or_start_anew():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            testbed.power_on("off", cloud_config(runcmd=["poweroff"]))
            testbed.power_on("again", cloud_config(runcmd=["systemctl reboot"]))

            assert await testbed.tasks["off"] == "poweroff"
            assert await testbed.tasks["again"] == "reboot"

    run_driven(scenario())


UNIT = """\
[Unit]
After=cloud-final.service
ConditionPathExists=!/etc/done

[Service]
Type=oneshot
RemainAfterExit=yes
EnvironmentFile=/etc/unit.env
ExecStartPre=-/bin/false
ExecStart=/bin/sh /opt/work.sh ${WHAT}
Restart=on-failure
RestartSec=10

[Install]
WantedBy=multi-user.target
"""


def test_a_unit_of_the_users_own_runs_after_cloud_init_and_again_until_it_succeeds():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            script = "#!/bin/sh\nset -e\nif [ ! -f /etc/tried ]; then touch /etc/tried; echo fails; exit 1; fi\necho did $1\n"
            files = [
                {"path": "/etc/systemd/system/work.service", "content": UNIT},
                {"path": "/etc/unit.env", "content": "WHAT=it\n"},
                {"path": "/opt/work.sh", "content": script, "permissions": "0755"},
            ]
            runcmd = ["systemctl daemon-reload", "systemctl enable work", "systemctl start --no-block work"]
            host = testbed.power_on("one", cloud_config(write_files=files, runcmd=runcmd))

            await testbed.wait_for(lambda: host.logged("work: did it"))

            order = [line[11:] for line in host.lines]
            assert (
                order.index("cloud-init: finished") < order.index("work: fails") < order.index("work: did it")
            )

    run_driven(scenario())


def test_specifiers_name_the_files_and_arguments_of_a_unit():
    """As in RKE2's and K3s' own units: EnvironmentFile=-/etc/default/%N."""

    async def scenario() -> None:
        async with a_testbed() as testbed:
            unit = UNIT.replace("/etc/unit.env", "-/etc/default/%N").replace("${WHAT}", "${WHAT} %n 100%%n")
            files = [
                {"path": "/etc/systemd/system/work.service", "content": unit},
                {"path": "/etc/default/work", "content": "WHAT=it\n"},
                {"path": "/opt/work.sh", "content": "echo did $1 in $2 to $3\n"},
            ]
            host = testbed.power_on(
                "one", cloud_config(write_files=files, runcmd=["systemctl start --no-block work"])
            )

            await testbed.wait_for(lambda: host.logged("work: did it in work.service to 100%n"))

    run_driven(scenario())


def test_at_boot_a_unit_waits_for_those_that_name_it_in_before_and_not_for_the_end_of_what_they_run():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            late = (
                "[Unit]\nBefore=early.service late.service\n[Service]\n"
                "ExecStartPre=/bin/sh -c 'sleep 7; echo probed'\nExecStart=/bin/sh -c 'sleep 99; echo ended'\n"
            )
            early = "[Service]\nExecStart=/bin/echo starts\n"
            files = [
                {"path": "/etc/systemd/system/late.service", "content": late},
                {"path": "/etc/systemd/system/early.service", "content": early},
            ]
            enable = ["systemctl enable late.service early.service"]
            testbed.power_on("one", cloud_config(write_files=files, runcmd=enable))
            await booted(testbed)
            await testbed.cut_power("one")
            host = testbed.power_on("one")

            await testbed.wait_for(lambda: host.logged("early: starts"))

            order = [line[11:] for line in host.lines]
            assert order.index("late: probed") < order.index("early: starts")
            assert "late: ended" not in order

    run_driven(scenario())


def test_the_kernel_makes_the_interfaces_that_it_has_modules_for():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            probe = "unshare --net sh -c 'ip link add name a type {} && echo made {}' || echo code $?"
            files = [{"path": "/etc/modprobe.d/minimal.conf", "content": "blacklist macvlan\n"}]
            runcmd = [probe.format(kind, kind) for kind in ("veth", "macvlan")]
            runcmd += ["ip addr && echo passed over", "unshare --net && echo nothing to run"]
            host = testbed.power_on("one", cloud_config(write_files=files, runcmd=runcmd))
            await booted(testbed)

            lines = [line[11:] for line in host.lines]
            assert lines[lines.index("cloud-init: made veth") : lines.index("cloud-init: finished")] == [
                "cloud-init: made veth",
                "cloud-init: ip: Error: Unknown device type.",
                "cloud-init: code 2",
                "not simulated: ip addr",
                "cloud-init: passed over",
                "cloud-init: nothing to run",
            ]

    run_driven(scenario())


def test_waiting_in_a_run_command_for_a_unit_that_waits_for_cloud_init_hangs_for_ever():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            files = [
                {"path": "/etc/systemd/system/work.service", "content": UNIT},
                {"path": "/etc/unit.env", "content": "WHAT=it\n"},
                {"path": "/opt/work.sh", "content": "echo did $1\n"},
            ]
            host = testbed.power_on("one", cloud_config(write_files=files, runcmd=["systemctl start work"]))
            await testbed.sleep(3600)

            assert not host.logged("cloud-init: finished")
            assert host.logged("work.service waits for cloud-final.service")

    run_driven(scenario())


def test_a_download_goes_to_standard_output_or_into_the_named_file():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            commands = [
                "wget -qO- https://get.rke2.io | grep -q Simulated && echo piped",
                "curl -fsSLo /opt/a --retry 3 https://get.rke2.io && test -s /opt/a && echo saved",
                "apt-get -y -o Dpkg::Options::=--force-confold install jq && echo installed",
                "sysctl -qw kernel.panic=10 && sysctl -n kernel.panic",
            ]
            host = testbed.power_on("one", cloud_config(runcmd=commands))
            await booted(testbed)

            lines = [line.partition("cloud-init: ")[2] for line in host.lines]
            assert [one for one in ("piped", "saved", "installed", "10") if one not in lines] == []

    run_driven(scenario())


def test_a_file_for_a_user_who_is_not_there_ends_the_list():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            files = [
                {"path": "/etc/a", "content": "a"},
                {"path": "/etc/b", "content": "b", "owner": "etcd:etcd"},
                {"path": "/etc/c", "content": "c"},
            ]
            host = testbed.power_on("one", cloud_config(write_files=files))
            await booted(testbed)

            assert host.logged("failed at /etc/b: Unknown user or group: 'etcd'")
            assert {"/etc/a", "/etc/b", "/etc/c"} & set(testbed.disks["one"].files) == {"/etc/a"}

    run_driven(scenario())


SYSCTL = "vm.overcommit_memory=1\nvm.panic_on_oom=0\nkernel.panic=10\nkernel.panic_on_oops=1\n"


def test_a_hardened_server_needs_its_user_and_its_kernel_parameters():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            cluster = ClusterFixture()
            kubectl = Kubectl(testbed, cluster)
            bare = testbed.power_on("bare", cluster.first("bare", profile="cis"))
            await testbed.sleep(60)
            assert bare.logged(
                "missing required: user: unknown user etcd; invalid kernel parameter value vm.over"
            )
            await testbed.cut_power("bare")

            files = {"/etc/sysctl.d/60-rke2-cis.conf": SYSCTL}
            document = cluster.first("one", profile="cis", files=files).replace(
                "runcmd:\n",
                "runcmd:\n- useradd -r -s /sbin/nologin -M etcd\n- systemctl restart systemd-sysctl\n",
            )
            testbed.leases = {"52:54:00:00:00:01": "10.0.0.11"}
            testbed.power_on("one", document)
            await testbed.wait_for(kubectl.ready)
            await testbed.cut_power("one")
            testbed.power_on("one")
            await testbed.wait_for(kubectl.ready)

    run_driven(scenario())


def test_a_registry_file_that_is_no_yaml_keeps_the_service_down():
    async def scenario() -> None:
        async with a_testbed() as testbed:
            files = {"/etc/rancher/rke2/registries.yaml": "mirrors: [\n"}
            host = testbed.power_on("one", ClusterFixture().first("one", files=files))
            await testbed.sleep(60)

            assert host.logged("failed to read /etc/rancher/rke2/registries.yaml: yaml")
            assert testbed.network.listeners() == {}

    run_driven(scenario())
