import re
from datetime import timedelta
from ipaddress import ip_network

import pytest

from windrow.cloudprovider.cmd.arguments import BadFlags, parse_flags
from windrow.cloudprovider.cmd.flag_table import FLAGS, render_help
from windrow.cloudprovider.names import CONTROLLERS


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


def test_the_log_is_text_or_json():
    needed = ["--cloud-config=/c"]

    assert parse_flags(needed).log_format == "text"
    assert parse_flags([*needed, "--logging-format=json"]).log_format == "json"
    assert "--logging-format" not in parse_flags([*needed, "--logging-format=json"]).ignored


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
        (["--min-resync-period=1x"], 'flag: time: unknown unit "x" in duration "1x"'),
        (["--min-resync-period=x"], 'flag: time: invalid duration "x"'),
        (["--min-resync-period="], 'flag: time: invalid duration ""'),
        (["--min-resync-period=1m.5"], 'flag: time: missing unit in duration "1m.5": write 1m.5s'),
        (["--min-resync-period=1.2.3"], 'flag: time: missing unit in duration "1.2.3": write numbers with h'),
        (["--leader-elect-lease-duration=15"], 'time: missing unit in duration "15": write 15s'),
        (["here"], "does not take any arguments, got [here]"),
        (["here", "--cloud-config=/c", "there"], "got [here there]"),
        (["--", "--cloud-config=/c"], "got [--cloud-config=/c]"),
        (["--=x"], "bad flag syntax: --=x"),
        (["--controllers=service"], '"service" is not in the list of known controllers'),
        (["--management-network=a/b/c"], "NAMESPACE/NAME"),
        (["--management-network=/c"], "NAMESPACE/NAME"),
        (["--node-ip-cidr=10.0.0.0/8,11.0.0.0/8"], "at most one IPv4"),
        (["--node-ip-cidr=127.0.0.1"], "no range for node addresses"),
        (["--node-ip-cidr=10.0.0.0/99"], "neither an IP address nor a CIDR"),
        (["--node-exclude-ip-ranges=nine"], "neither an IP address nor a CIDR"),
        (["--concurrent-node-syncs=0"], "must be greater than 0"),
        (["--concurrent-service-syncs=0"], "must be greater than 0"),
        (["-v=high"], 'invalid argument "high" for "-v, --v" flag: strconv.ParseInt'),
        (["--secure-port=65536"], "must be between 0 and 65535, inclusive"),
        (["--bind-address=here"], 'for "--bind-address" flag: failed to parse IP: "here"'),
        (["--orphan-sweep=all"], "write one of off, report, delete"),
        (["--logging-format=xml"], "write one of text, json"),
        (["--tls-cert-file=/a"], "--tls-cert-file and --tls-private-key-file belong together"),
        (["--tls-min-version=12"], "unknown tls version '12'"),
        (
            ["--leader-elect-resource-lock=endpoints"],
            "error creating lock: endpoints lock is removed, migrate to leases",
        ),
        (["--leader-elect-resource-lock=x"], "error creating lock: Invalid lock-type x"),
        (
            ["--leader-elect-renew-deadline=90s"],
            "leaseDuration must be greater than renewDeadline: --leader-elect-lease-duration is 15s, "
            "--leader-elect-renew-deadline is 90s",
        ),
        (
            ["--leader-elect-retry-period=5s", "--leader-elect-renew-deadline=5s"],
            "renewDeadline must be greater than retryPeriod*JitterFactor (1.2): --leader-elect-renew-deadline is 5s, "
            "--leader-elect-retry-period is 5s",
        ),
        (["--leader-elect-retry-period=0s"], "retryPeriod must be greater than zero"),
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


@pytest.mark.parametrize("quoted", ['"default/vlan-50"', "'default/vlan-50'", " default/vlan-50\n"])
def test_quotes_around_the_network_are_dropped_with_a_warning(quoted):
    options = parse_flags([f"--management-network={quoted}"])

    assert options.management_network == "default/vlan-50"
    assert any(warning.startswith("--management-network is ") for warning in options.warnings)


@pytest.mark.parametrize("flag", ["node-ip-cidr", "node-exclude-ip-ranges"])
@pytest.mark.parametrize(
    "quoted", ['"10.0.0.0/8,fd00::/8"', "'10.0.0.0/8','fd00::/8'", '"10.0.0.0/8", fd00::/8']
)
def test_quotes_around_ranges_are_dropped_with_a_warning(flag, quoted):
    options = parse_flags([f"--{flag}={quoted}"])

    ranges = (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
    assert ranges in (options.node_ip_cidr, options.node_exclude_ip_ranges)
    assert any(warning.startswith(f"--{flag} is ") for warning in options.warnings)


def test_white_space_between_ranges_is_nobodys_mistake():
    warnings = parse_flags(["--node-ip-cidr=10.0.0.0/8, fd00::/8 "]).warnings

    assert not any("--node-ip-cidr" in warning for warning in warnings)


def test_empty_words_that_templates_leave_behind_are_passed_over():
    assert parse_flags(["", "--cloud-config=/c", ""]).cloud_config == "/c"


def test_a_cluster_without_a_name_is_warned_about():
    assert any("--cluster-name is kubernetes" in warning for warning in parse_flags([]).warnings)


def test_flags_that_do_nothing_here_are_named_and_those_that_work_are_not():
    options = parse_flags(["--profiling=false", "--secure-port=0", "--feature-gates", "A=true", "-v3"])

    assert options.ignored == ("--feature-gates", "--profiling")
    assert (options.secure_port, options.verbosity) == (0, 3)


def test_no_node_and_no_service_waits_for_another_whatever_the_flags_say():
    asked = [
        parse_flags([f"--concurrent-{what}-syncs={number}" for what in ("node", "service")])
        for number in (1, 20)
    ]

    assert [(one.node_workers, one.service_workers) for one in (parse_flags([]), *asked)] == [
        (4, 8),
        (4, 8),
        (20, 20),
    ]


def test_each_cluster_has_an_allowance_of_its_own():
    options = parse_flags(["--kube-api-qps=50", "--kube-api-burst=0", "--host-api-burst=7"])

    assert (options.qps, options.burst, options.host_qps, options.host_burst) == (50, 200, 50, 7)


def test_less_than_nothing_is_no_limit():
    options = parse_flags(["--kube-api-qps=-1", "--kube-api-burst=-1"])

    assert (options.qps, options.burst) == (1_000_000, 1_000_000)


def test_the_spans_of_the_lease_do_not_matter_without_an_election():
    assert not parse_flags(["--leader-elect=false", "--leader-elect-renew-deadline=1h"]).leader_elect


@pytest.mark.parametrize("argv", [["--version"], ["--version=raw"], ["--version", "--help"]])
def test_the_version_takes_no_word_after_it(argv):
    assert parse_flags(argv).version


def test_the_defaults_that_the_help_names_are_those_in_effect():
    said = [
        f"--{flag.name}={flag.default}"
        for flag in FLAGS.values()
        if flag.has_effect and flag.default and flag.type != "version"
    ]

    assert parse_flags([one for one in said if one != "--help=false"]) == parse_flags([])


def test_the_help_names_every_flag_once():
    text = render_help()

    assert {
        name: len(re.findall(rf"--{name}(?![-\w])", text.split("Usage:")[1]))
        for name in FLAGS
        if FLAGS[name].has_effect
    } == {
        **{name: 1 for name in FLAGS if FLAGS[name].has_effect},
        "cloud-config": 2,
    }
    assert all(f"--{name}" in text for name in FLAGS)


def test_the_help_fits_a_terminal():
    assert max(map(len, render_help().splitlines())) <= 80
