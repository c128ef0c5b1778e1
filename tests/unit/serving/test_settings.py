"""The options of both servers (interface.md 6)."""

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.serving import settings

PLAIN = ("--plain-http", "--listen", "127.0.0.1:0")
DASHBOARD = ("--dashboard-listen", "127.0.0.1:8714")


def read_refusal(capsys, server, *argv) -> str:
    with pytest.raises(SystemExit) as ended:
        settings.parse(server, argv)
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.fixture
def files(tmp_path):
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (tmp_path / name).write_bytes(b"")
    return ("--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key"))


@pytest.mark.parametrize(("server", "port"), [("webhook", 9443), ("extender", 8713)])
def test_defaults_are_the_documented_ones(files, server, port):
    parsed = settings.parse(server, files)
    assert parsed.listen == settings.Address("", port)
    assert parsed.ops_listen == settings.Address("", 8080)
    assert parsed.drain_seconds == 10
    assert server == "webhook" or parsed.assume_seconds == 30
    assert (parsed.policy, parsed.snapshot, parsed.kubeconfig, parsed.client_ca) == (None, None, None, None)
    assert not parsed.plain_http


ADDRESSES = {  # text, and host, port and whether it is of this host
    ":9443": ("", 9443, False),
    "0.0.0.0:1": ("0.0.0.0", 1, False),  # noqa: S104 - parsed, not bound
    "[::1]:0": ("::1", 0, True),
    "127.8.0.1:5": ("127.8.0.1", 5, True),
    "localhost:65535": ("localhost", 65535, True),
    "example.org:1": ("example.org", 1, False),
}


def test_a_listen_address_is_parsed_and_formatted_unchanged(files):
    for text, expected in ADDRESSES.items():
        listen = settings.parse("webhook", [*files, "--listen", text]).listen
        assert (listen.host, listen.port, listen.is_loopback) == expected
        assert str(listen) == text


@pytest.mark.parametrize(
    ("server", "argv", "said"),
    [
        ("webhook", (), "no serving certificate"),
        ("webhook", ("--plain-http",), "--plain-http does not encrypt :9443: listen on loopback"),
        ("webhook", ("--plain-http", "--listen", "example.org:1"), "listen on loopback"),
        ("webhook", (*PLAIN, "--allow-plain-http"), "unrecognized arguments: --allow-plain-http"),
        ("extender", ("--plain-http",), "or add --allow-plain-http and a NetworkPolicy"),
        ("webhook", (*PLAIN, "--listen", "127.0.0.1"), "not HOST:PORT"),
        ("webhook", (*PLAIN, "--listen", "127.0.0.1:65536"), "not HOST:PORT"),
        ("webhook", (*PLAIN, "--listen", "127.0.0.1:http"), "not HOST:PORT"),
        ("webhook", (*PLAIN, "--listen", "::1:443"), "in brackets, [::1]:9443"),
        ("webhook", (*PLAIN, "--drain-seconds=-1"), "seconds, 0 or more"),
        ("webhook", (*PLAIN, "--drain-seconds", "nan"), "seconds, 0 or more"),
        ("extender", (*PLAIN, "--assume-seconds", "inf"), "seconds, 0 or more"),
        ("webhook", (*PLAIN, "--policy", "/nowhere/policy.yaml"), "--policy /nowhere/policy.yaml: No such file"),
        ("webhook", (*PLAIN, "--policy", "/"), "--policy /: Is a directory"),
        ("webhook", (*PLAIN, "--snapshot", __file__), "add --policy FILE"),
        ("webhook", (*PLAIN, "--tls-cert", __file__), "--plain-http excludes"),
        ("webhook", (*PLAIN, "--client-ca", __file__), "--plain-http excludes"),
        ("webhook", ("--tls-cert", __file__), "give both --tls-cert and --tls-key"),
        # client names without a name would admit every client
        *(("webhook", (*PLAIN, "--client-names", text), "contains no name") for text in (",", " , ", " ")),
        ("webhook", (*PLAIN, *DASHBOARD), "unrecognized arguments: --dashboard-listen"),
        ("extender", (*PLAIN, "--dashboard-listen=nowhere"), "--dashboard-listen: 'nowhere' is not HOST:PORT"),
        (
            "extender",
            (*PLAIN, "--dashboard-listen=:8715", f"--snapshot={__file__}", f"--policy={__file__}"),
            "can authorize viewers",
        ),
        ("webhook", (*PLAIN, "--drain", "2"), "unrecognized arguments"),
    ],
)
def test_invalid_server_settings_are_usage_errors_that_name_the_option(capsys, server, argv, said):
    assert said in read_refusal(capsys, server, *argv)


@given(st.text(max_size=30))
def test_any_text_is_parsed_as_an_address_or_rejected(text):
    try:
        address = settings.parse_address(text)
    except argparse.ArgumentTypeError:
        return
    assert 0 <= address.port <= 65535
    assert settings.parse_address(str(address)) == address
