import pytest

from windrow.kubernetes.proxies import BadProxy, Proxy, bypasses_proxy, find_proxy, parse_proxy

HARVESTER = "https://harvester.example:6443"


@pytest.mark.parametrize(
    ("server", "env", "found"),
    [
        (HARVESTER, {}, None),
        (HARVESTER, {"HTTPS_PROXY": "http://proxy:3128"}, Proxy("proxy", 3128)),
        (HARVESTER, {"https_proxy": "proxy:3128"}, Proxy("proxy", 3128)),
        (HARVESTER, {"HTTPS_PROXY": "", "https_proxy": "proxy"}, Proxy("proxy", 80)),
        (HARVESTER, {"HTTP_PROXY": "http://proxy:3128"}, None),
        ("http://harvester.example", {"HTTP_PROXY": "http://proxy:3128"}, Proxy("proxy", 3128)),
        (HARVESTER, {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": ".example"}, None),
        ("https://127.0.0.1:6443", {"HTTPS_PROXY": "http://proxy:3128"}, None),
        ("https://[::1]:6443", {"HTTPS_PROXY": "http://proxy:3128"}, None),
        ("https://localhost:6443", {"HTTPS_PROXY": "http://proxy:3128"}, None),
        ("https://[fd00::1]:6443", {"HTTPS_PROXY": "http://[fd00::9]:3128"}, Proxy("fd00::9", 3128)),
    ],
)
def test_the_environment_names_a_proxy_as_for_go(server: str, env: dict[str, str], found: Proxy | None):
    assert find_proxy(server, "", env) == found


def test_the_kubeconfigs_proxy_is_used_whatever_the_environment_says():
    env = {"NO_PROXY": "*", "HTTPS_PROXY": "http://other:1"}

    assert find_proxy("https://127.0.0.1:6443", "http://127.0.0.1:8888", env) == Proxy("127.0.0.1", 8888)


def test_user_and_password_of_a_proxy_are_sent_to_the_proxy_only():
    proxy = parse_proxy("http://us%20er:p%40ss@proxy:3128", "HTTPS_PROXY")

    assert proxy.authorization == "Basic dXMgZXI6cEBzcw=="
    assert "dXMg" not in repr(proxy)


@pytest.mark.parametrize("url", ["socks5://proxy:1080", "https://proxy:3128", "http://", "http://proxy:x"])
def test_a_proxy_that_cannot_be_used_is_refused_without_its_password(url: str):
    with pytest.raises(BadProxy, match="HTTPS_PROXY") as caught:
        parse_proxy(url.replace("://", "://user:geheim@") if "proxy" in url else url, "HTTPS_PROXY")
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("host", "no_proxy", "exempt"),
    [
        ("a.example.com", "example.com", True),
        ("example.com", "example.com", True),
        ("notexample.com", "example.com", False),
        ("a.example.com", ".example.com", True),
        ("example.com", ".example.com", False),
        ("a.example.com", "*.example.com", True),
        ("A.Example.COM.", " EXAMPLE.com ", True),
        ("example.com", "other,example.com:6443", True),
        ("example.com", "example.com:443", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "10.1.2.3:443", False),
        ("10.1.2.3", "10.1.2", False),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("fd00::1", "fd00::/16", True),
        ("fd00::1", "[fd00::1]:6443", True),
        ("fd00::1", "[fd00::1]:443", False),
        ("example.com", "", False),
        ("example.com", "*", True),
        ("example.com", ",,", False),
    ],
)
def test_no_proxy_is_read_as_go_reads_it(host: str, no_proxy: str, exempt: bool):
    assert bypasses_proxy(host, 6443, no_proxy) is exempt
