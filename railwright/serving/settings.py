"""The options of both servers: command line, environment, defaults, and the combinations that are refused.

Implements the table of docs/interface.md 6 and the rules for TLS. Opens files only to check that they can be read.
"""

import argparse
import ipaddress
import math
import pathlib
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, NoReturn

import msgspec

from railwright.fabric import quantity

ServerName = Literal["webhook", "extender"]

_MIB = 1 << 20
_WEBHOOK_BODY = 7 * _MIB  # two objects of the API server's 3 MiB limit, and 1 MiB for the review around them
_EXTENDER_BODY = 256 * _MIB  # Volcano sends every node with every task; 5,000 nodes make tens of MiB
_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"", "0", "false", "no", "off"})


class Address(msgspec.Struct, frozen=True):
    """An address to listen on. An empty host means every interface; port 0 means any free port."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The effective options of one server. None means not set."""

    server: ServerName
    listen: Address
    ops_listen: Address
    dashboard_listen: Address | None = None
    tls_cert: pathlib.Path | None = None
    tls_key: pathlib.Path | None = None
    client_ca: pathlib.Path | None = None
    client_names: frozenset[str] = frozenset()  # empty: any name that the CA has certified
    plain_http: bool = False
    allow_plain_http: bool = False
    kubeconfig: str | None = None
    policy: pathlib.Path | None = None
    snapshot: pathlib.Path | None = None
    max_body: int = _WEBHOOK_BODY  # bytes
    assume_seconds: float = 30.0
    drain_seconds: float = 10.0
    leader_elect: bool = False
    lease_seconds: float = 15.0
    stale_seconds: float = 300.0
    excluded_namespaces: frozenset[str] = frozenset()  # in addition to those that are always excluded
    otlp_endpoint: str | None = None


def describe(settings: Settings) -> dict[str, Any]:
    """Return the settings as the start log shows them. Keys are given by path, so no setting holds a secret."""
    values = {name: getattr(settings, name) for name in settings.__struct_fields__}
    return {name: _format_value(value) for name, value in values.items()}


def _format_value(value: Any) -> Any:
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    return str(value) if isinstance(value, Address | pathlib.Path) else value


def parse(server: ServerName, argv: Sequence[str] | None, environ: Mapping[str, str]) -> Settings:
    """Return the settings from `argv` (without the program's name; None: that of the process) and RAILWRIGHT_*.

    `argv` takes precedence. On an error, prints the option, the cause and the allowed values to stderr and raises
    SystemExit(2).
    """
    parser = _build_parser(server)
    arguments = vars(parser.parse_args(argv))
    values: dict[str, Any] = {}
    for option in _OPTIONS:
        try:
            values[option.name] = _parse_value(option, arguments[option.name], environ, server)
        except ValueError as error:
            parser.error(str(error))
    settings = Settings(server=server, **values)
    for find_problem in (
        _find_transport_problem,
        _find_port_problem,
        _find_dashboard_problem,
        _find_source_problem,
        _find_leader_problem,
        _find_file_problem,
    ):
        if reason := find_problem(settings):
            parser.error(reason)
    return settings


class _Option(NamedTuple):
    """A row of the table: the name of an option, its parser, its default, and its help text."""

    name: str
    read: Callable[[str], Any]
    default: Any  # a mapping by server if the defaults differ
    metavar: str
    help: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return f"RAILWRIGHT_{self.name.upper()}"

    def default_for(self, server: ServerName) -> Any:
        return self.default[server] if isinstance(self.default, dict) else self.default


def _parse_value(option: _Option, argument: str | None, environ: Mapping[str, str], server: ServerName) -> Any:
    source, text = option.flag, argument
    if text is None:  # an empty variable counts as unset, because charts write it so
        source, text = option.variable, environ.get(option.variable) or None
    if text is None:
        return option.default_for(server)
    try:
        return option.read(text)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def parse_address(text: str) -> Address:
    """Parse HOST:PORT. Raises ValueError with the expected form."""
    host, separator, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r} is not HOST:PORT: write an IPv6 address in brackets, such as [::1]:9443")
    if not separator or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT with a port from 0 to 65535, such as :9443 or 127.0.0.1:0")
    return Address(host, int(port))


def _parse_bytes(text: str) -> int:
    try:
        size = quantity.parse_units(text)
    except quantity.InvalidQuantityError:
        size = 0
    if size < 1:
        raise ValueError(f"{text!r} is not a positive number of bytes, such as 7340032 or 7Mi")
    return size


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"{text!r} is not a number of seconds, 0 or more")
    return seconds


def _parse_switch(text: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() in _TRUE


def _parse_names(text: str) -> frozenset[str]:
    """Return the names of a comma list. A list without a name is an error, because it would admit every client."""
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    if text and not names:
        raise ValueError(f"{text!r} contains no name; write NAME,NAME or leave the option out")
    return names


def _parse_endpoint(text: str) -> str:
    """Return the URL that spans are posted to. A path is kept; without one, OTLP's default path is added."""
    if "@" in text:
        raise ValueError("a URL with credentials would be logged: put them into OTEL_EXPORTER_OTLP_HEADERS")
    message = f"{text!r} is not http(s)://HOST[:PORT][/PATH], such as http://otel-collector.monitoring:4318"
    try:
        url = urllib.parse.urlsplit(text.strip())
        port = url.port
    except ValueError:  # an invalid port, or a bracket that is not closed
        raise ValueError(message) from None
    if url.scheme not in {"http", "https"} or not url.hostname or port == 0 or url.query or url.fragment:
        raise ValueError(message)
    return url.geturl() if url.path.strip("/") else f"{url.scheme}://{url.netloc}/v1/traces"


def _parse_file(text: str) -> pathlib.Path:
    if not text or "\0" in text:
        raise ValueError(f"{text!r} is not a file name")
    return pathlib.Path(text)


def _parse_file_name(text: str) -> str:
    return str(_parse_file(text))


_OPTIONS = (
    _Option(
        "listen",
        parse_address,
        {"webhook": Address("", 9443), "extender": Address("", 8713)},
        "HOST:PORT",
        "address of the service; port 0 chooses a free port, printed as 'listening on HOST:PORT'",
    ),
    _Option("ops_listen", parse_address, Address("", 8080), "HOST:PORT", "address of probes and metrics, plain HTTP"),
    _Option(
        "dashboard_listen",
        parse_address,
        None,
        "HOST:PORT",
        "extender: address of the dashboard; default: no dashboard",
    ),
    _Option("tls_cert", _parse_file, None, "FILE", "serving certificate with its chain, PEM; reloaded on change"),
    _Option("tls_key", _parse_file, None, "FILE", "private key of the serving certificate, PEM; reloaded on change"),
    _Option("client_ca", _parse_file, None, "FILE", "CA bundle, PEM; clients must present a certificate issued by it"),
    _Option(
        "client_names",
        _parse_names,
        frozenset(),
        "NAME,...",
        "accept only client certificates with one of these common names or SANs",
    ),
    _Option("plain_http", _parse_switch, False, "", "serve without TLS; allowed on loopback only"),
    _Option(
        "allow_plain_http", _parse_switch, False, "", "extender: allow --plain-http on addresses other than loopback"
    ),
    _Option(
        "kubeconfig", _parse_file_name, None, "FILE", "kubeconfig of the API server; default: the pod's service account"
    ),
    _Option(
        "policy", _parse_file, None, "FILE", "read the policy from a file instead of the ConfigMap; reloaded on change"
    ),
    _Option(
        "snapshot",
        _parse_file,
        None,
        "FILE",
        "read cluster objects from a file instead of an API server; reloaded on change",
    ),
    _Option(
        "max_body",
        _parse_bytes,
        {"webhook": _WEBHOOK_BODY, "extender": _EXTENDER_BODY},
        "BYTES",
        "maximum size of a request body; larger ones get 413",
    ),
    _Option(
        "assume_seconds",
        _parse_seconds,
        30.0,
        "SECONDS",
        "extender: how long an allocation without a binding stays reserved",
    ),
    _Option(
        "drain_seconds",
        _parse_seconds,
        10.0,
        "SECONDS",
        "how long the server still answers after SIGTERM, while it reports not ready",
    ),
    _Option(
        "leader_elect",
        _parse_switch,
        False,
        "",
        "extender: elect a leader by a Lease; only the leader answers schedulers",
    ),
    _Option(
        "lease_seconds",
        _parse_seconds,
        15.0,
        "SECONDS",
        "extender: duration of the Lease, which is how long a failover takes",
    ),
    _Option(
        "stale_seconds",
        _parse_seconds,
        300.0,
        "SECONDS",
        "extender: report not ready if a watch cache is older than this",
    ),
    _Option(
        "excluded_namespaces",
        _parse_names,
        frozenset(),
        "NAME,...",
        "webhook: namespaces excluded in the webhook configuration besides kube-system and its own",
    ),
    _Option(
        "otlp_endpoint",
        _parse_endpoint,
        None,
        "URL",
        "endpoint for traces, OTLP over HTTP; requires the extra `tracing`",
    ),
)
_DESCRIPTIONS = {
    "webhook": "Run the admission webhook, which gives opted-in pods their RDMA network.",
    "extender": "Run the scheduler extender, which scores nodes for gangs of Volcano and kube-scheduler.",
}


def _build_parser(server: ServerName) -> argparse.ArgumentParser:
    parser = _Parser(prog=f"railwright {server}", description=_DESCRIPTIONS[server], allow_abbrev=False)
    for option in _OPTIONS:
        default = option.default_for(server)
        owner, _, description = option.help.partition(": ")
        text = f"{description if owner == server else option.help} [{option.variable}]"
        text += f" (default {default})" if default else ""
        if owner in _DESCRIPTIONS and owner != server:
            text = argparse.SUPPRESS  # still accepted, so that its error says which server has it
        if option.read is _parse_switch:
            parser.add_argument(option.flag, dest=option.name, nargs="?", const="true", metavar="BOOL", help=text)
        else:
            parser.add_argument(option.flag, dest=option.name, metavar=option.metavar, help=text)
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\nTry '{self.prog} --help'; each option is also RAILWRIGHT_<NAME>.\n")


def _find_transport_problem(settings: Settings) -> str | None:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        return "--tls-cert and --tls-key must be given together: add the missing one"
    if settings.plain_http and (settings.tls_cert or settings.client_ca):
        return "--plain-http excludes --tls-cert, --tls-key and --client-ca: remove one or the others"
    if settings.client_names and not settings.client_ca:
        return "--client-names requires --client-ca: names are only checked in certificates issued by that CA"
    if not settings.plain_http and not settings.tls_cert:
        return "no serving certificate: give --tls-cert and --tls-key (see railwright certs issue), or --plain-http"
    if settings.allow_plain_http and settings.server != "extender":
        return "--allow-plain-http is for the extender only: the API server calls webhooks over TLS"
    if settings.plain_http and not settings.listen.is_loopback and not settings.allow_plain_http:
        extra = ", or add --allow-plain-http and a NetworkPolicy" if settings.server == "extender" else ""
        return f"--plain-http on {settings.listen}: listen on loopback, such as 127.0.0.1:{settings.listen.port}{extra}"
    return None


def _find_port_problem(settings: Settings) -> str | None:
    if settings.listen.port == settings.ops_listen.port != 0 and _do_overlap(settings.listen, settings.ops_listen):
        return f"--listen {settings.listen} and --ops-listen {settings.ops_listen} use the same port: change one"
    return None


def _find_dashboard_problem(settings: Settings) -> str | None:
    listen = settings.dashboard_listen
    if listen is None:
        return None
    if settings.server != "extender":
        return "--dashboard-listen is for the extender only: the webhook does not track gangs"
    for flag, second in (("--listen", settings.listen), ("--ops-listen", settings.ops_listen)):
        if listen.port == second.port != 0 and _do_overlap(listen, second):
            return f"--dashboard-listen {listen} and {flag} {second} use the same port: change one"
    if settings.snapshot and not listen.is_loopback:
        return f"--dashboard-listen {listen} with --snapshot: no API server can authorise viewers; use 127.0.0.1"
    return None


def _do_overlap(first: Address, second: Address) -> bool:
    wildcards = {"", "0.0.0.0", "::"}  # noqa: S104 - compared, not bound
    return first.host == second.host or bool(wildcards & {first.host, second.host})


def _find_source_problem(settings: Settings) -> str | None:
    if settings.snapshot and not settings.policy and not settings.kubeconfig:
        return "--snapshot replaces the cluster, so the policy must come from a file as well: add --policy FILE"
    return None


def _find_leader_problem(settings: Settings) -> str | None:
    if settings.leader_elect and settings.server != "extender":
        return "--leader-elect is for the extender only: every replica of the webhook answers"
    if settings.leader_elect and settings.snapshot:
        return "--leader-elect requires an API server, which --snapshot replaces: remove one of them"
    if settings.lease_seconds < 1:
        return f"--lease-seconds {settings.lease_seconds:g}: a Lease lasts whole seconds; give 1 or more"
    return None


def _find_file_problem(settings: Settings) -> str | None:
    for option in _OPTIONS:
        path = getattr(settings, option.name) if option.read in (_parse_file, _parse_file_name) else None
        if path is not None and (reason := _find_read_error(pathlib.Path(path))):
            return f"{option.flag} {path}: {reason}"
    return None


def _find_read_error(path: pathlib.Path) -> str | None:
    try:
        path.open("rb").close()
    except OSError as error:
        return error.strerror or type(error).__name__
    return None
