"""Settings that Harvester's validator refuses, word by word: v1.8.1."""

from __future__ import annotations

import pytest

from windrow.emulator import kinds
from windrow.emulator.admission import settings
from windrow.kubernetes.errors import KubeError
from windrow.kubernetes.objects import new_object

from .objects import listers_of

TTL = "kubeconfig-default-token-ttl-minutes"
OVERHEAD = "additional-guest-memory-overhead-ratio"


def check_setting(setting, *objects):
    settings.check_setting(setting, listers_of(*objects))


def a_setting(name: str, value: str, default: str = ""):
    return new_object(kinds.SETTING, name, value=value, default=default)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("overcommit-config", '{"cpu":200,"memory":150,"storage":100}'),
        ("overcommit-config", '{"CPU":200,"Memory":150,"storage":100}'),
        (OVERHEAD, "0"),
        (OVERHEAD, "1e1"),
        ("max-hotplug-ratio", "04"),
        ("default-vm-termination-grace-period-seconds", "0"),
        (TTL, "52560000"),
        ("vm-force-reset-policy", '{"enable":true,"period":15}'),
        ("overcommit-config", ""),
        ("another", "anything"),
        ("auto-rotate-rke2-certs", '{"ExpiringInHours":8759}'),
    ],
)
def test_a_value_that_harvester_takes_is_taken(name: str, value: str) -> None:
    check_setting(a_setting(name, value))


@pytest.mark.parametrize(
    ("name", "value", "text", "code"),
    [
        ("overcommit-config", "[]", "Invalid JSON: []", 422),
        ("overcommit-config", '{"cpu":1.5}', 'Invalid JSON: {"cpu":1.5}', 422),
        ("overcommit-config", '{"cpu":99}', "Cannot undercommit. Should be greater than or equal to 100 but got 99", 422),
        ("overcommit-config", "null", "Cannot undercommit. Should be greater than or equal to 100 but got 0", 422),
        (OVERHEAD, "0.9", "value 0.9 can't be less than 1", 422),
        (OVERHEAD, "10.1", "value 10.1 can't be greater than 10", 422),
        (OVERHEAD, "1 ", "value 1  can't be converted to float64, error:strconv.ParseFloat: parsing \"1 \": invalid syntax", 422),
        ("max-hotplug-ratio", "21", "value: 21 must be in range [1 .. 20]", 500),
        ("max-hotplug-ratio", "-1", 'failed to parse value: -1 strconv.ParseUint: parsing "-1": invalid syntax', 500),
        ("default-vm-termination-grace-period-seconds", "-1", "can't be negative", 422),
        ("default-vm-termination-grace-period-seconds", "007", "leading zero in input: 007", 422),
        ("default-vm-termination-grace-period-seconds", "+5", "no allowed symbol in input: +5", 422),
        ("support-bundle-timeout", "x", 'strconv.Atoi: parsing "x": invalid syntax', 422),
        (TTL, "52560001", f"{TTL} exceeds 100 years", 422),
        ("vm-force-reset-policy", '{"period":"1"}', "unmarshal failed, error: json: cannot unmarshal string into Go struct field "
         'VMForceResetPolicy.period of type int64, value: {"period":"1"}', 422),
        ("support-bundle-file-name", "a.b", "invalid file name: must not contain dots", 422),
        ("auto-rotate-rke2-certs", "{}", "expiringInHours can't be negative or zero", 422),
        ("ssl-parameters", '{"protocols":"TLSv9"}', "unsupported SSL protocol: TLSv9", 422),
        ("ntp-servers", '{"ntpServers":["a","a"]}', "duplicate NTP server: [a]", 422),
        ("ntp-servers", '{"ntpServers":["a..b"]}', "invalid NTP server: a..b", 422),
        ("kubevirt-migration", '{"network":"a/b"}', "network field is configured by vm-migration-network setting", 422),
        ("vm-force-reset-policy", "{", "unmarshal failed, error: unexpected end of JSON input, value: {", 422),
        ("vm-force-reset-policy", "{}", "period value should be greater than 0, value: 0", 422),
    ],
)  # fmt: skip
def test_another_value_is_refused(name: str, value: str, text: str, code: int) -> None:
    with pytest.raises(KubeError) as refused:
        check_setting(a_setting(name, value))

    assert (
        refused.value.message.removeprefix(
            'admission webhook "validator.harvesterhci.io" denied the request: '
        )
        == text
    )
    assert refused.value.status == code


def test_a_value_of_ten_thousand_digits_is_refused() -> None:
    with pytest.raises(KubeError, match="value out of range"):
        check_setting(a_setting(TTL, "9" * 10_000))


def test_the_default_is_judged_before_the_value() -> None:
    with pytest.raises(KubeError) as refused:
        check_setting(a_setting("support-bundle-timeout", "x", default="-1"))

    assert refused.value.details["causes"][0]["field"] == "default"


def test_how_machines_migrate_is_not_changed_while_one_does():
    migration = new_object(kinds.MIGRATION, "m", "ns", status={"migrationState": {"completed": False}})
    value = '{"parallelMigrationsPerCluster":3}'
    with pytest.raises(KubeError, match="There is a VM Migration in progress") as refused:
        check_setting(a_setting("kubevirt-migration", value), migration)
    assert refused.value.status == 400

    migration["status"]["migrationState"]["completed"] = True
    check_setting(a_setting("kubevirt-migration", value), migration)


def test_the_security_standard_of_namespaces_is_not_deleted():
    with pytest.raises(KubeError, match="Disallow delete setting name") as refused:
        settings.check_setting_removal(a_setting("cluster-pod-security-standard", ""))
    assert refused.value.status == 405
    settings.check_setting_removal(a_setting("ntp-servers", ""))
