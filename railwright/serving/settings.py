"""The options of both servers: command line, environment, defaults, and which combinations are refused.

Owns CONTRACT section 6's table and the rules about TLS. Opens nothing but to see that a file can be read; knows
nothing of sockets, certificates' contents or what a policy is.
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
_WEBHOOK_BODY = 7 * _MIB  # two objects of the API server's 3 MiB limit and 1 MiB around them
_EXTENDER_BODY = 256 * _MIB  # Volcano sends every node with every task; 5,000 nodes make tens of MiB
_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"", "0", "false", "no", "off"})
_MOST_WORKERS = 64  # more processes than any node that runs an admission webhook has cores for


class Address(msgspec.Struct, frozen=True):
    """Where to listen; an empty host means every interface, port 0 a free port."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True when nothing outside this machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The effective options of one server; None means not given."""

    server: ServerName
    listen: Address
    ops_listen: Address
    dashboard_listen: Address | None = None
    tls_cert: pathlib.Path | None = None
    tls_key: pathlib.Path | None = None
    client_ca: pathlib.Path | None = None
    client_names: frozenset[str] = frozenset()  # empty: whoever the authority has certified
    plain_http: bool = False
    allow_plain_http: bool = False
    kubeconfig: str | None = None
    policy: pathlib.Path | None = None
    snapshot: pathlib.Path | None = None
    workers: int = 1
    max_body: int = _WEBHOOK_BODY  # bytes
    assume_seconds: float = 30.0
    drain_seconds: float = 10.0
    leader_elect: bool = False
    lease_seconds: float = 15.0
    stale_seconds: float = 300.0
    excluded_namespaces: frozenset[str] = frozenset()  # beside those that are excluded everywhere
    otlp_endpoint: str | None = None


def describe(settings: Settings) -> dict[str, Any]:
    """The settings as the start log shows them. No option holds a secret: keys are given by path and never shown."""
    values = {name: getattr(settings, name) for name in settings.__struct_fields__}
    return {name: _shown(value) for name, value in values.items()}


def _shown(value: Any) -> Any:
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    return str(value) if isinstance(value, Address | pathlib.Path) else value


def parse(server: ServerName, argv: Sequence[str] | None, environ: Mapping[str, str]) -> Settings:
    """The settings from `argv` (without the program's name; None: the process's) and RAILWRIGHT_*; `argv` wins.

    Raises SystemExit(2) after saying on stderr which option is wrong, in which way, and what would be right.
    """
    parser = _parser(server)
    given = vars(parser.parse_args(argv))
    values: dict[str, Any] = {}
    for option in _OPTIONS:
        try:
            values[option.name] = _value(option, given[option.name], environ, server)
        except ValueError as error:
            parser.error(str(error))
    settings = Settings(server=server, **values)
    for complaint in (
        _transport_complaint,
        _process_complaint,
        _dashboard_complaint,
        _source_complaint,
        _leader_complaint,
        _file_complaint,
    ):
        if reason := complaint(settings):
            parser.error(reason)
    return settings


class _Option(NamedTuple):
    """A row of the table: how an option is spelled, read, and what it is where nobody sets it."""

    name: str
    read: Callable[[str], Any]
    default: Any  # a mapping by server where the two differ
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


def _value(option: _Option, given: str | None, environ: Mapping[str, str], server: ServerName) -> Any:
    source, text = option.flag, given
    if text is None:  # an empty variable is how a chart says "unset"
        source, text = option.variable, environ.get(option.variable) or None
    if text is None:
        return option.default_for(server)
    try:
        return option.read(text)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def address(text: str) -> Address:
    """HOST:PORT as an address. Raises ValueError that says what would be right."""
    host, separator, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: write an IPv6 address in brackets, as [::1]:9443")
    if not separator or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ValueError(f"{text!r} is not HOST:PORT with a port of 0 to 65535, such as :9443 or 127.0.0.1:0")
    return Address(host, int(port))


def _bytes(text: str) -> int:
    try:
        size = quantity.whole(text)
    except quantity.InvalidQuantityError:
        size = 0
    if size < 1:
        raise ValueError(f"{text!r} is not a positive number of bytes, such as 7340032 or 7Mi")
    return size


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"{text!r} is not a number of seconds of 0 or more")
    return seconds


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= _MOST_WORKERS):
        raise ValueError(f"{text!r} is not a whole number of 1 to {_MOST_WORKERS}")
    return int(text)


def _switch(text: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() in _TRUE


def _names(text: str) -> frozenset[str]:
    return frozenset(each.strip() for each in text.split(",") if each.strip())


def _endpoint(text: str) -> str:
    """The URL that spans are posted to: a collector's own path is kept, a bare host gets OTLP's."""
    if "@" in text:
        raise ValueError("a URL with credentials would be logged: put them into OTEL_EXPORTER_OTLP_HEADERS")
    wrong = f"{text!r} is not http(s)://HOST[:PORT][/PATH], such as http://otel-collector.monitoring:4318"
    try:
        url = urllib.parse.urlsplit(text.strip())
        port = url.port
    except ValueError:  # a port that is none, a bracket that is not closed
        raise ValueError(wrong) from None
    if url.scheme not in {"http", "https"} or not url.hostname or port == 0 or url.query or url.fragment:
        raise ValueError(wrong)
    return url.geturl() if url.path.strip("/") else f"{url.scheme}://{url.netloc}/v1/traces"


def _file(text: str) -> pathlib.Path:
    if not text or "\0" in text:
        raise ValueError(f"{text!r} is not a file name")
    return pathlib.Path(text)


def _file_name(text: str) -> str:
    return str(_file(text))


# fmt: off  # one row an option: a table is read down its columns
_OPTIONS = (
    _Option(
        "listen",
        address,
        {"webhook": Address("", 9443), "extender": Address("", 8713)},
        "HOST:PORT",
        "where callers connect; port 0 is a free port, printed as 'listening on HOST:PORT'",
    ),
    _Option("ops_listen", address, Address("", 8080), "HOST:PORT", "probes and metrics, plain HTTP"),
    _Option("dashboard_listen", address, None, "HOST:PORT", "extender: the dashboard, off unless given"),
    _Option("tls_cert", _file, None, "FILE", "certificate chain, PEM, reloaded on change"),
    _Option("tls_key", _file, None, "FILE", "its private key, PEM, reloaded on change"),
    _Option("client_ca", _file, None, "FILE", "callers must present a certificate of this authority"),
    _Option("client_names", _names, frozenset(), "NAME,...", "of those, only these common names or SANs are callers"),
    _Option("plain_http", _switch, False, "", "no TLS; refused on anything but loopback"),
    _Option("allow_plain_http", _switch, False, "", "extender: let --plain-http listen beyond loopback"),
    _Option("kubeconfig", _file_name, None, "FILE", "the API server; without it the in-cluster account"),
    _Option("policy", _file, None, "FILE", "policy from a file instead of the ConfigMap, reread on change"),
    _Option("snapshot", _file, None, "FILE", "no cluster: objects from a file, reread on change"),
    _Option("workers", _count, 1, "N", "processes sharing the port (webhook only)"),
    _Option(
        "max_body",
        _bytes,
        {"webhook": _WEBHOOK_BODY, "extender": _EXTENDER_BODY},
        "BYTES",
        "larger request bodies get 413",
    ),
    _Option("assume_seconds", _seconds, 30.0, "SECONDS", "extender: how long an unconfirmed allocation is held"),
    _Option("drain_seconds", _seconds, 10.0, "SECONDS", "after SIGTERM: not ready, still answering, then close"),
    _Option("leader_elect", _switch, False, "", "extender: of several replicas only the holder of a Lease answers"),
    _Option("lease_seconds", _seconds, 15.0, "SECONDS", "extender: so long after a leader's death another takes over"),
    _Option(
        "stale_seconds", _seconds, 300.0, "SECONDS", "extender: not ready once a cache was not heard of for so long"
    ),
    _Option(
        "excluded_namespaces",
        _names,
        frozenset(),
        "NAME,...",
        "webhook: namespaces that its configuration excludes, beside kube-system and its own: it counts no pods there",
    ),
    _Option("otlp_endpoint", _endpoint, None, "URL", "send traces there, OTLP over HTTP; needs the extra `tracing`"),
)
# fmt: on
_ABOUT = {
    "webhook": "The admission webhook: gives opted-in pods their RDMA network.",
    "extender": "The scheduler extender: scores nodes for gangs, for Volcano and kube-scheduler.",
}


def _parser(server: ServerName) -> argparse.ArgumentParser:
    parser = _Parser(prog=f"railwright {server}", description=_ABOUT[server], allow_abbrev=False)
    for option in _OPTIONS:
        default = option.default_for(server)
        text = f"{option.help} [{option.variable}]" + (f" (default {default})" if default else "")
        if option.read is _switch:
            parser.add_argument(option.flag, dest=option.name, nargs="?", const="true", metavar="BOOL", help=text)
        else:
            parser.add_argument(option.flag, dest=option.name, metavar=option.metavar, help=text)
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\nTry '{self.prog} --help'; each option is also RAILWRIGHT_<NAME>.\n")


def _transport_complaint(settings: Settings) -> str | None:
    if bool(settings.tls_cert) != bool(settings.tls_key):
        return "--tls-cert and --tls-key go together: one of them is missing"
    if settings.plain_http and (settings.tls_cert or settings.client_ca):
        return "--plain-http contradicts --tls-cert, --tls-key and --client-ca: leave out one or the other"
    if settings.client_names and not settings.client_ca:
        return "--client-names needs --client-ca: a name proves nothing without the authority that has certified it"
    if not settings.plain_http and not settings.tls_cert:
        return "no certificate: give --tls-cert and --tls-key (railwright certs issue makes them), or --plain-http"
    if settings.allow_plain_http and settings.server != "extender":
        return "--allow-plain-http is for the extender only: the API server calls webhooks over TLS"
    if settings.plain_http and not settings.listen.is_loopback and not settings.allow_plain_http:
        extra = ", or add --allow-plain-http and a NetworkPolicy" if settings.server == "extender" else ""
        return f"--plain-http on {settings.listen}: listen on loopback, such as 127.0.0.1:{settings.listen.port}{extra}"
    return None


def _process_complaint(settings: Settings) -> str | None:
    if settings.workers > 1 and settings.server == "extender":
        return f"--workers {settings.workers}: the extender is one process, because its ledger is"
    if settings.listen.port == settings.ops_listen.port != 0 and _overlap(settings.listen, settings.ops_listen):
        return f"--listen {settings.listen} and --ops-listen {settings.ops_listen} are the same port"
    return None


def _dashboard_complaint(settings: Settings) -> str | None:
    at = settings.dashboard_listen
    if at is None:
        return None
    if settings.server != "extender":
        return "--dashboard-listen is for the extender only: the webhook knows no gangs"
    for flag, other in (("--listen", settings.listen), ("--ops-listen", settings.ops_listen)):
        if at.port == other.port != 0 and _overlap(at, other):
            return f"--dashboard-listen {at} and {flag} {other} are the same port"
    if settings.snapshot and not at.is_loopback:
        return f"--dashboard-listen {at} with --snapshot: there is no API server to say who may see it; use 127.0.0.1"
    return None


def _overlap(one: Address, other: Address) -> bool:
    every = {"", "0.0.0.0", "::"}  # noqa: S104 - compared, not bound
    return one.host == other.host or bool(every & {one.host, other.host})


def _source_complaint(settings: Settings) -> str | None:
    if settings.snapshot and not settings.policy and not settings.kubeconfig:
        return "--snapshot means no cluster, so the policy needs a file too: add --policy FILE"
    return None


def _leader_complaint(settings: Settings) -> str | None:
    if settings.leader_elect and settings.server != "extender":
        return "--leader-elect is for the extender only: every replica of the webhook answers"
    if settings.leader_elect and settings.snapshot:
        return "--leader-elect needs an API server, and --snapshot means that there is none: leave out one of them"
    if settings.lease_seconds < 1:
        return f"--lease-seconds {settings.lease_seconds:g}: a Lease counts whole seconds, so give 1 or more"
    return None


def _file_complaint(settings: Settings) -> str | None:
    for option in _OPTIONS:
        path = getattr(settings, option.name) if option.read in (_file, _file_name) else None
        if path is not None and (reason := _unreadable(pathlib.Path(path))):
            return f"{option.flag} {path}: {reason}"
    return None


def _unreadable(path: pathlib.Path) -> str | None:
    try:
        path.open("rb").close()
    except OSError as error:
        return error.strerror or type(error).__name__
    return None
