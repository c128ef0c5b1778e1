"""The options of both servers (interface.md 6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.serving import settings

PLAIN = ("--plain-http", "--listen", "127.0.0.1:0")
DASHBOARD = ("--dashboard-listen", "127.0.0.1:8714")


def read_refusal(capsys, server, *argv, **environ) -> str:
    with pytest.raises(SystemExit) as ended:
        settings.parse(server, argv, environ)
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.fixture
def files(tmp_path):
    for name in ("tls.crt", "tls.key", "ca.crt"):
        (tmp_path / name).write_bytes(b"")
    return ("--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key"))


@pytest.mark.parametrize(
    ("server", "port", "max_body"), [("webhook", 9443, 7 * 2**20), ("extender", 8713, 256 * 2**20)]
)
def test_defaults_are_the_documented_ones(files, server, port, max_body):
    parsed = settings.parse(server, files, {})
    assert (parsed.listen, parsed.max_body) == (settings.Address("", port), max_body)
    assert parsed.ops_listen == settings.Address("", 8080)
    assert (parsed.assume_seconds, parsed.drain_seconds) == (30.0, 10.0)
    assert (parsed.policy, parsed.snapshot, parsed.kubeconfig, parsed.client_ca) == (None, None, None, None)
    assert not parsed.plain_http


def test_every_option_is_also_an_environment_variable_and_the_command_line_wins(tmp_path, files):
    policy = tmp_path / "policy.yaml"
    policy.write_text("")
    environ = {
        "RAILWRIGHT_LISTEN": "127.0.0.1:1",
        "RAILWRIGHT_OPS_LISTEN": "127.0.0.1:2",
        "RAILWRIGHT_PLAIN_HTTP": "true",
        "RAILWRIGHT_POLICY": str(policy),
        "RAILWRIGHT_SNAPSHOT": str(policy),
        "RAILWRIGHT_KUBECONFIG": "",  # a chart's way of saying that it is not set
        "RAILWRIGHT_MAX_BODY": "2Mi",
        "RAILWRIGHT_ASSUME_SECONDS": "5",
        "RAILWRIGHT_DRAIN_SECONDS": "0.5",
        "RAILWRIGHT_SERVICE_PORT": "tcp://10.0.0.1:443",  # what Kubernetes sets for a Service
    }
    parsed = settings.parse("webhook", ["--max-body", "1Mi"], environ)
    assert (parsed.listen.port, parsed.ops_listen.port, parsed.max_body) == (1, 2, 1 << 20)
    assert (parsed.policy, parsed.snapshot, parsed.kubeconfig) == (policy, policy, None)
    assert (parsed.assume_seconds, parsed.drain_seconds, parsed.plain_http) == (5.0, 0.5, True)
    assert not settings.parse("webhook", ["--plain-http=false", *files], environ).plain_http


ADDRESSES = {  # text, and host, port and whether it is of this host
    ":9443": ("", 9443, False),
    "0.0.0.0:1": ("0.0.0.0", 1, False),  # noqa: S104 - parsed, not bound
    "[::1]:0": ("::1", 0, True),
    "127.8.0.1:5": ("127.8.0.1", 5, True),
    "localhost:65535": ("localhost", 65535, True),
    "example.org:1": ("example.org", 1, False),
}


def test_an_address_is_read_and_written_back(files):
    for text, expected in ADDRESSES.items():
        listen = settings.parse("webhook", [*files, "--listen", text], {}).listen
        assert (listen.host, listen.port, listen.is_loopback) == expected
        assert str(listen) == text


@pytest.mark.parametrize(
    ("server", "argv", "said"),
    [
        ("webhook", (), "no serving certificate"),
        ("webhook", ("--plain-http",), "--plain-http on :9443: listen on loopback"),
        ("webhook", ("--plain-http", "--listen", "example.org:1"), "listen on loopback"),
        ("webhook", ("--plain-http", "--allow-plain-http"), "--allow-plain-http is for the extender"),
        ("extender", ("--plain-http",), "or add --allow-plain-http and a NetworkPolicy"),
        ("webhook", (*PLAIN, "--workers", "2"), "unrecognized arguments: --workers"),
        ("webhook", (*PLAIN, "--listen", "127.0.0.1"), "not HOST:PORT"),
        ("webhook", (*PLAIN, "--listen", "127.0.0.1:65536"), "not HOST:PORT"),
        ("webhook", (*PLAIN, "--listen", "127.0.0.1:http"), "not HOST:PORT"),
        ("webhook", (*PLAIN, "--listen", "::1:443"), "in brackets"),
        ("webhook", (*PLAIN, "--listen", "127.0.0.1:8080"), "use the same port"),
        ("webhook", (*PLAIN, "--drain-seconds=-1"), "seconds, 0 or more"),
        ("webhook", (*PLAIN, "--drain-seconds", "nan"), "seconds, 0 or more"),
        ("webhook", (*PLAIN, "--assume-seconds", "inf"), "seconds, 0 or more"),
        ("webhook", (*PLAIN, "--leader-elect"), "every replica of the webhook answers"),
        ("extender", (*PLAIN, "--leader-elect", "--snapshot=s", "--policy=p"), "which --snapshot replaces"),
        ("extender", (*PLAIN, "--lease-seconds=0.5"), "give 1 or more"),
        ("webhook", (*PLAIN, "--max-body", "0"), "positive number of bytes"),
        ("webhook", (*PLAIN, "--max-body", "7MiB"), "positive number of bytes"),
        ("webhook", (*PLAIN, "--policy", "/nowhere/policy.yaml"), "--policy /nowhere/policy.yaml: No such file"),
        ("webhook", (*PLAIN, "--policy", "/"), "--policy /: Is a directory"),
        ("webhook", (*PLAIN, "--tls-cert", "x"), "--tls-cert and --tls-key must be given together"),
        ("webhook", (*PLAIN, "--client-ca", "x"), "--plain-http excludes"),
        ("webhook", (*PLAIN, "--plain-http", "perhaps"), "neither true nor false"),
        # client names without a name would admit every client
        *(("webhook", (*PLAIN, "--client-names", text), "contains no name") for text in (",", " , ", " ")),
        ("webhook", (*PLAIN, *DASHBOARD), "--dashboard-listen is for the extender only"),
        ("extender", (*PLAIN, *DASHBOARD, "--ops-listen=127.0.0.1:8714"), "and --dashboard-listen 127.0.0.1:8714"),
        ("extender", (*PLAIN, "--dashboard-listen=nowhere"), "--dashboard-listen: 'nowhere' is not HOST:PORT"),
        ("extender", (*PLAIN, "--dashboard-listen=:8715", "--snapshot=x", "--policy=x"), "can authorize viewers"),
        ("webhook", (*PLAIN, "--drain", "2"), "unrecognized arguments"),
        ("webhook", (*PLAIN, "--polcy", "p"), "unrecognized arguments: --polcy p; did you mean --policy?"),
    ],
)
def test_impossible_settings_are_usage_errors_that_name_the_option(capsys, server, argv, said):
    assert said in read_refusal(capsys, server, *argv)


def test_a_wrong_variable_is_named_as_the_variable(capsys):
    assert "RAILWRIGHT_MAX_BODY: 'x'" in read_refusal(capsys, "webhook", *PLAIN, RAILWRIGHT_MAX_BODY="x")


def test_a_snapshot_without_a_policy_file_is_refused(capsys, tmp_path):
    (tmp_path / "s").write_text("")
    assert "add --policy FILE" in read_refusal(capsys, "webhook", *PLAIN, "--snapshot", str(tmp_path / "s"))


def test_the_description_is_plain_and_holds_every_setting(files):
    shown = settings.describe(settings.parse("webhook", [*files, "--listen", "[::1]:1"], {}))
    assert set(shown) == set(settings.Settings.__struct_fields__)
    assert shown["listen"] == "[::1]:1"
    assert shown["tls_key"].endswith("tls.key")
    assert all(isinstance(value, str | int | float | None) for value in shown.values())


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_a_value_error(text):
    try:
        address = settings.parse_address(text)
    except ValueError:
        return
    assert 0 <= address.port <= 65535
    assert settings.parse_address(str(address)) == address


@pytest.mark.parametrize(
    "text",
    ["extender:8080", "grpc://extender:1", "http://extender:port", "http://extender:0", "http://[::1", "http://a?x=1"],
)
def test_the_url_of_the_extender_needs_scheme_host_and_valid_port(text):
    with pytest.raises(ValueError, match="is not http://HOST"):
        settings.parse_origin(text)


def test_there_is_no_dashboard_unless_it_is_asked_for():
    assert settings.parse("extender", PLAIN, {}).dashboard_listen is None
    parsed = settings.parse("extender", PLAIN, {"RAILWRIGHT_DASHBOARD_LISTEN": "127.0.0.1:0"})
    assert parsed.dashboard_listen == settings.Address("127.0.0.1", 0)


@pytest.mark.parametrize(
    ("server", "own", "other"),
    [("webhook", "--excluded-namespaces", "--leader-elect"), ("extender", "--leader-elect", "--excluded-namespaces")],
)
def test_the_help_of_a_server_lists_its_own_options_only(server, own, other, capsys):
    with pytest.raises(SystemExit):
        settings.parse(server, ["--help"], {})
    stdout = capsys.readouterr().out
    assert own in stdout
    assert other not in stdout
    assert "extender: " not in stdout
    assert "webhook: " not in stdout
