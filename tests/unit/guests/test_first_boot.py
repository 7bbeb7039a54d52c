"""What a machine does with its cloud-init on its first boot, and what it leaves alone later."""

from __future__ import annotations

from windrow.core.yaml import dump
from windrow.testing.clock import run_driven

from .floor import Cluster, Floor, Kubectl, a_floor


def cloud_config(**keys: object) -> str:
    return "#cloud-config\n" + dump(keys)


async def booted(floor: Floor, name: str = "one") -> None:
    await floor.until(lambda: floor.plugs[name].says("login:"))


def test_files_packages_and_commands_come_in_cloud_inits_order():
    async def story() -> None:
        async with a_floor() as floor:
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
            plug = floor.power_on("one", document)
            await booted(floor)

            assert plug.says("cat: /etc/a: No such file or directory"), (
                "boot commands run before files are written"
            )
            assert plug.says("runcmd sees a file and more deferred")
            assert plug.says("no $expansion")
            assert plug.says("installed jq")

    run_driven(story())


def test_a_second_boot_runs_boot_commands_only():
    async def story() -> None:
        async with a_floor() as floor:
            document = cloud_config(bootcmd=["echo every boot"], runcmd=["echo once > /etc/once", "echo ran"])
            plug = floor.power_on("one", document)
            await booted(floor)
            await floor.cut_power("one")
            plug.lines.clear()

            floor.power_on("one")
            await booted(floor)

            assert plug.says("every boot")
            assert not plug.says("ran")
            assert floor.disks["one"].files["/etc/once"].content == b"once\n"

    run_driven(story())


def test_rewritten_user_data_is_not_applied_again_but_its_host_name_is():
    async def story() -> None:
        async with a_floor() as floor:
            files = [{"path": "/etc/secret", "content": "old"}]
            floor.power_on("one", cloud_config(hostname="one", write_files=files))
            await booted(floor)
            await floor.cut_power("one")
            floor.plugs["one"].lines.clear()

            files = [{"path": "/etc/secret", "content": "new"}]
            floor.power_on("one", cloud_config(hostname="uno", write_files=files, runcmd=["echo applied"]))
            await booted(floor)

            assert floor.disks["one"].files["/etc/secret"].content == b"old"
            assert floor.disks["one"].files["/etc/hostname"].content == b"uno\n"
            assert not floor.plugs["one"].says("applied")

    run_driven(story())


def test_a_node_whose_user_data_was_scrubbed_comes_back():
    async def story() -> None:
        async with a_floor() as floor:
            cluster = Cluster()
            kubectl = Kubectl(floor, cluster)
            floor.power_on("one", cluster.first("one"))
            await floor.until(kubectl.ready)
            await floor.cut_power("one")

            floor.power_on("one", "#cloud-config\nhostname: one\n")

            await floor.until(kubectl.ready)
            assert floor.plugs["one"].report is not None

    run_driven(story())


def test_network_data_gives_static_addresses_by_mac():
    async def story() -> None:
        async with a_floor() as floor:
            network = dump(
                {
                    "version": 2,
                    "ethernets": {
                        "x": {"match": {"macaddress": "52:54:00:00:00:00"}, "addresses": ["10.0.0.55/24"]}
                    },
                }
            )
            plug = floor.power_on("one", "#cloud-config\n{}\n", network_data=network, agent=True)
            await booted(floor)
            await floor.wait(5)

            assert plug.report is not None
            assert plug.report.addresses == {"nic-0": ("10.0.0.55",)}
            assert floor.leases == {}

    run_driven(story())


def test_network_data_for_another_card_leaves_the_machine_alone():
    async def story() -> None:
        async with a_floor() as floor:
            cluster = Cluster()
            network = dump({"version": 2, "ethernets": {"ens33": {"dhcp4": True}}})
            plug = floor.power_on("one", cluster.first("one"), network_data=network)
            await floor.wait(300)

            assert plug.says("for an interface named 'ens33', which this machine does not have")
            assert plug.says("the machine has no network")
            assert floor.rack.doors() == {}

    run_driven(story())


def test_without_dhcp_nothing_can_be_installed():
    async def story() -> None:
        async with a_floor() as floor:
            floor.dhcp = False
            plug = floor.power_on("one", Cluster().first("one"))
            await floor.wait(120)

            assert plug.says("no DHCP answer on nic-0")
            assert plug.says("Could not resolve host: get.rke2.io")
            assert plug.report is None

    run_driven(story())


def test_an_agent_that_was_installed_but_not_started_is_silent_until_the_next_boot():
    async def story() -> None:
        async with a_floor() as floor:
            plug = floor.power_on("one", cloud_config(packages=["qemu-guest-agent"]))
            await booted(floor)
            await floor.wait(30)
            assert plug.report is None

            await floor.cut_power("one")
            plug = floor.power_on("one")
            await floor.until(lambda: plug.report is not None)

    run_driven(story())


def test_an_image_with_the_agent_reports_soon_after_boot():
    async def story() -> None:
        async with a_floor() as floor:
            plug = floor.power_on("one", cloud_config(hostname="uno"), agent=True)

            assert await floor.until(lambda: plug.report is not None) < 15
            assert plug.report is not None
            assert plug.report.hostname == "uno"

    run_driven(story())


def test_speed_divides_every_delay():
    async def story(speed: float) -> float:
        async with a_floor(speed=speed) as floor:
            cluster = Cluster()
            kubectl = Kubectl(floor, cluster)
            start = floor.clock.now()
            floor.power_on("one", cluster.first("one"))
            while not await kubectl.ready():
                await floor.wait(0.01)
            return (floor.clock.now() - start).total_seconds()

    slow, fast = run_driven(story(1)), run_driven(story(20))

    assert abs(slow - 20 * fast) < 1


def test_a_machine_may_switch_itself_off_or_start_anew():
    async def story() -> None:
        async with a_floor() as floor:
            floor.power_on("off", cloud_config(runcmd=["poweroff"]))
            floor.power_on("again", cloud_config(runcmd=["systemctl reboot"]))

            assert await floor.tasks["off"] == "poweroff"
            assert await floor.tasks["again"] == "reboot"

    run_driven(story())


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
    async def story() -> None:
        async with a_floor() as floor:
            script = "#!/bin/sh\nset -e\nif [ ! -f /etc/tried ]; then touch /etc/tried; echo fails; exit 1; fi\necho did $1\n"
            files = [
                {"path": "/etc/systemd/system/work.service", "content": UNIT},
                {"path": "/etc/unit.env", "content": "WHAT=it\n"},
                {"path": "/opt/work.sh", "content": script, "permissions": "0755"},
            ]
            runcmd = ["systemctl daemon-reload", "systemctl enable work", "systemctl start --no-block work"]
            plug = floor.power_on("one", cloud_config(write_files=files, runcmd=runcmd))

            await floor.until(lambda: plug.says("work: did it"))

            order = [line[11:] for line in plug.lines]
            assert (
                order.index("cloud-init: finished") < order.index("work: fails") < order.index("work: did it")
            )

    run_driven(story())


def test_waiting_in_a_run_command_for_a_unit_that_waits_for_cloud_init_hangs_for_ever():
    async def story() -> None:
        async with a_floor() as floor:
            files = [
                {"path": "/etc/systemd/system/work.service", "content": UNIT},
                {"path": "/etc/unit.env", "content": "WHAT=it\n"},
                {"path": "/opt/work.sh", "content": "echo did $1\n"},
            ]
            plug = floor.power_on("one", cloud_config(write_files=files, runcmd=["systemctl start work"]))
            await floor.wait(3600)

            assert not plug.says("cloud-init: finished")
            assert plug.says("work.service waits for cloud-final.service")

    run_driven(story())


def test_a_file_for_a_user_who_is_not_there_ends_the_list():
    async def story() -> None:
        async with a_floor() as floor:
            files = [
                {"path": "/etc/a", "content": "a"},
                {"path": "/etc/b", "content": "b", "owner": "etcd:etcd"},
                {"path": "/etc/c", "content": "c"},
            ]
            plug = floor.power_on("one", cloud_config(write_files=files))
            await booted(floor)

            assert plug.says("failed at /etc/b: Unknown user or group: 'etcd'")
            assert {"/etc/a", "/etc/b", "/etc/c"} & set(floor.disks["one"].files) == {"/etc/a"}

    run_driven(story())


SYSCTL = "vm.overcommit_memory=1\nvm.panic_on_oom=0\nkernel.panic=10\nkernel.panic_on_oops=1\n"


def test_a_hardened_server_needs_its_user_and_its_kernel_parameters():
    async def story() -> None:
        async with a_floor() as floor:
            cluster = Cluster()
            kubectl = Kubectl(floor, cluster)
            bare = floor.power_on("bare", cluster.first("bare", profile="cis"))
            await floor.wait(60)
            assert bare.says(
                "missing required: user: unknown user etcd; invalid kernel parameter value vm.over"
            )
            await floor.cut_power("bare")

            files = {"/etc/sysctl.d/60-rke2-cis.conf": SYSCTL}
            document = cluster.first("one", profile="cis", files=files).replace(
                "runcmd:\n",
                "runcmd:\n- useradd -r -s /sbin/nologin -M etcd\n- systemctl restart systemd-sysctl\n",
            )
            floor.leases = {"52:54:00:00:00:01": "10.0.0.11"}
            floor.power_on("one", document)
            await floor.until(kubectl.ready)
            await floor.cut_power("one")
            floor.power_on("one")
            await floor.until(kubectl.ready)

    run_driven(story())


def test_a_registry_file_that_is_no_yaml_keeps_the_service_down():
    async def story() -> None:
        async with a_floor() as floor:
            files = {"/etc/rancher/rke2/registries.yaml": "mirrors: [\n"}
            plug = floor.power_on("one", Cluster().first("one", files=files))
            await floor.wait(60)

            assert plug.says("failed to read /etc/rancher/rke2/registries.yaml: yaml")
            assert floor.rack.doors() == {}

    run_driven(story())
