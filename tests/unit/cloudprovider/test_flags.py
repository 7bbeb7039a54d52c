from datetime import timedelta
from ipaddress import ip_network

import pytest

from windrow.cloudprovider.flags import CONTROLLERS, BadFlags, parse_flags


def test_what_charts_pass_is_understood():
    options = parse_flags(
        [
            "--cloud-config=/etc/kubernetes/cloud-config",
            "--cluster-name",
            "demo",
            "--node-ip-cidr= 10.0.0.0/8 , ,fd00::/8",
            "--node-exclude-ip-ranges=10.0.0.9",
            "--node-exclude-ip-ranges=10.1.0.0/16,fd00::1",
            "--leader-elect-lease-duration=1m30s",
            "--disable-vmi-controller",
            "-v=5",
            "--secure-port=10258",
        ]
    )

    assert options.cloud_config == "/etc/kubernetes/cloud-config"
    assert options.cluster_name == "demo"
    assert options.node_ip_cidr == (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
    assert [str(one) for one in options.node_exclude_ip_ranges] == [
        "10.0.0.9/32",
        "10.1.0.0/16",
        "fd00::1/128",
    ]
    assert options.lease_duration == timedelta(seconds=90)
    assert options.disable_vmi_controller


def test_without_flags_the_go_programs_defaults_hold():
    options = parse_flags([])

    assert (options.cluster_name, options.leader_elect, options.lease_name) == (
        "kubernetes",
        True,
        "cloud-controller-manager",
    )
    assert options.controllers == frozenset(CONTROLLERS)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--nonsense"], "unknown flag: --nonsense"),
        (["-x"], "unknown shorthand flag: 'x' in -x"),
        (["--cloud-config"], "flag needs an argument: --cloud-config"),
        (
            ["--leader-elect=maybe"],
            'invalid argument "maybe" for "--leader-elect" flag: strconv.ParseBool: parsing',
        ),
        (["--secure-port=x"], 'invalid argument "x" for "--secure-port" flag: strconv.ParseInt: parsing "x"'),
        (["--min-resync-period=1x"], 'flag: time: invalid duration "1x"'),
        (["here"], "does not take any arguments, got [here]"),
        (["--=x"], "bad flag syntax: --=x"),
        (["--controllers=service"], '"service" is not in the list of known controllers'),
        (["--management-network=a/b/c"], "NAMESPACE/NAME"),
        (["--management-network=/c"], "NAMESPACE/NAME"),
        (["--node-ip-cidr=10.0.0.0/8,11.0.0.0/8"], "at most one IPv4"),
        (["--node-ip-cidr=127.0.0.1"], "no range for node addresses"),
        (["--node-ip-cidr=10.0.0.0/99"], "neither an IP address nor a CIDR"),
        (["--node-exclude-ip-ranges=nine"], "neither an IP address nor a CIDR"),
        (["--concurrent-node-syncs=0"], "must be greater than 0"),
    ],
)
def test_what_go_refuses_is_refused_in_its_words(argv, message):
    with pytest.raises(BadFlags) as caught:
        parse_flags(argv)

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("argv", "network"),
    [([], ""), (["--management-network=mgmt"], "default/mgmt"), (["--management-network=a/b"], "a/b")],
)
def test_a_bare_network_is_in_the_namespace_default(argv, network):
    assert parse_flags(argv).management_network == network


@pytest.mark.parametrize(
    ("wanted", "chosen"),
    [
        ("*", set(CONTROLLERS)),
        ("*,-service-lb-controller", set(CONTROLLERS) - {"service-lb-controller"}),
        ("cloud-node-controller", {"cloud-node-controller"}),
    ],
)
def test_controllers_are_chosen_by_name(wanted, chosen):
    assert parse_flags([f"--controllers={wanted}"]).controllers == chosen


def test_quotes_around_the_cluster_name_are_dropped_with_a_warning():
    options = parse_flags(['--cluster-name="demo"'])

    assert options.cluster_name == "demo"
    assert any("quotes" in warning for warning in options.warnings)


def test_a_cluster_without_a_name_is_warned_about():
    assert any("--cluster-name is kubernetes" in warning for warning in parse_flags([]).warnings)
