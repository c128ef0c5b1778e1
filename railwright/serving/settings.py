"""The settings of both servers: command line, environment and defaults, as in docs/interface.md 6.

A setting is one annotated field of `Settings`. Files are opened only to check that they can be read.
"""

import argparse
import difflib
import functools
import ipaddress
import itertools
import math
import pathlib
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, get_type_hints

import msgspec

from railwright.fabric import quantity

ServerName = Literal["webhook", "extender"]

_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"", "0", "false", "no", "off"})
_MIB = 1 << 20
WEBHOOK_BODY = 7 * _MIB  # two objects of the API server's 3 MiB limit, and 1 MiB for the review around them
EXTENDER_BODY = 256 * _MIB  # Volcano sends every node with every task; 5,000 nodes make tens of MiB
_DESCRIPTIONS = {
    "webhook": "Run the admission webhook, which gives opted-in pods their RDMA network.",
    "extender": "Run the scheduler extender, which scores nodes for gangs of Volcano and kube-scheduler.",
}


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


# --- values: each function raises ValueError with the expected form ---------------------------------------


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


def parse_bytes(text: str) -> int:
    """Return a positive number of bytes, written as a Kubernetes quantity."""
    size = quantity.read_units(text)
    if size < 1:
        raise ValueError(f"{text!r} is not a positive number of bytes, such as 7340032 or 7Mi")
    return size


def parse_seconds(text: str) -> float:
    """Return a number of seconds, 0 or more."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"{text!r} is not a number of seconds, 0 or more")
    return seconds


def parse_switch(text: str) -> bool:
    """Return whether the text means true."""
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() in _TRUE


def parse_names(text: str) -> frozenset[str]:
    """Return the names of a comma list. A list without a name is an error, because it would admit every client."""
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    if text and not names:
        raise ValueError(f"{text!r} contains no name; write NAME,NAME or leave the option out")
    return names


def parse_origin(text: str) -> str:
    """Return the URL of a server, without a path."""
    form = "http://HOST[:PORT], such as http://railwright-extender.railwright-system:8080"
    url = _parse_url(text, form)
    if url.scheme != "http" or url.path.strip("/") or "@" in text:
        raise ValueError(f"{text!r} is not {form}")
    return f"{url.scheme}://{url.netloc}"


def _parse_url(text: str, form: str) -> urllib.parse.SplitResult:
    message = f"{text!r} is not {form}"
    try:
        url = urllib.parse.urlsplit(text.strip())
        port = url.port
    except ValueError:  # an invalid port, or a bracket that is not closed
        raise ValueError(message) from None
    if url.scheme not in {"http", "https"} or not url.hostname or port == 0 or url.query or url.fragment:
        raise ValueError(message)
    return url


def parse_file(text: str) -> pathlib.Path:
    """Return the path of a file, which need not exist."""
    if not text or "\0" in text:
        raise ValueError(f"{text!r} is not a file name")
    return pathlib.Path(text)


def parse_file_name(text: str) -> str:
    """Return the path of a file as text."""
    return str(parse_file(text))


# --- the table -------------------------------------------------------------------------------------------


class Option(NamedTuple):
    """How a setting is written, and what --help says of it: `SERVER: TEXT` if one server alone has it."""

    metavar: str
    read: Callable[[str], Any]
    help: str
    defaults: Mapping[ServerName, Any] = {}  # if they differ


_address = functools.partial(Option, "HOST:PORT", parse_address)
_file = functools.partial(Option, "FILE", parse_file)
_names = functools.partial(Option, "NAME,...", parse_names)
_seconds = functools.partial(Option, "SECONDS", parse_seconds)
_switch = functools.partial(Option, "BOOL", parse_switch)


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The effective options of one server. None means not set."""

    server: ServerName
    listen: Annotated[
        Address,
        _address(
            "address of the service; port 0 chooses a free port, printed as 'listening on HOST:PORT'",
            {"webhook": Address("", 9443), "extender": Address("", 8713)},
        ),
    ]
    ops_listen: Annotated[Address, _address("address of probes and metrics, plain HTTP")] = Address("", 8080)
    dashboard_listen: Annotated[
        Address | None, _address("extender: address of the dashboard; default: no dashboard")
    ] = None
    volcano_listen: Annotated[
        Address | None,
        _address("extender: address of Volcano's paths, without client certificates; default: that of --listen"),
    ] = None
    tls_cert: Annotated[pathlib.Path | None, _file("serving certificate with its chain, PEM; reloaded on change")] = (
        None
    )
    tls_key: Annotated[
        pathlib.Path | None, _file("private key of the serving certificate, PEM; reloaded on change")
    ] = None
    client_ca: Annotated[
        pathlib.Path | None,
        _file("CA bundle, PEM; API servers and schedulers must present a certificate issued by it"),
    ] = None
    client_names: Annotated[
        frozenset[str], _names("accept only client certificates with one of these common names or SANs")
    ] = frozenset()  # empty: any name that the CA has certified
    plain_http: Annotated[bool, _switch("serve without TLS; allowed on loopback only")] = False
    allow_plain_http: Annotated[bool, _switch("extender: allow --plain-http on addresses other than loopback")] = False
    kubeconfig: Annotated[
        str | None,
        Option("FILE", parse_file_name, "kubeconfig of the API server; default: the pod's service account"),
    ] = None
    policy: Annotated[
        pathlib.Path | None, _file("read the policy from a file instead of the cluster; reloaded on change")
    ] = None
    snapshot: Annotated[
        pathlib.Path | None,
        _file("read cluster objects from a file instead of an API server; reloaded on change"),
    ] = None
    max_body: Annotated[
        int,
        Option(
            "BYTES",
            parse_bytes,
            "maximum size of a request body; larger ones get 413",
            {"webhook": WEBHOOK_BODY, "extender": EXTENDER_BODY},
        ),
    ] = WEBHOOK_BODY
    assume_seconds: Annotated[float, _seconds("extender: how long an allocation without a binding stays reserved")] = (
        30.0
    )
    drain_seconds: Annotated[
        float, _seconds("how long the server still answers after SIGTERM, while it reports not ready")
    ] = 10.0
    leader_elect: Annotated[
        bool, _switch("extender: elect a leader by a Lease; only the leader answers schedulers")
    ] = False
    lease_seconds: Annotated[float, _seconds("extender: duration of the Lease, which is how long a failover takes")] = (
        15.0
    )
    stale_seconds: Annotated[float, _seconds("extender: report not ready if a watch cache is older than this")] = 300.0
    unused_template_seconds: Annotated[
        float, _seconds("webhook: remove claim templates that no pod has named for this time")
    ] = 300.0
    excluded_namespaces: Annotated[
        frozenset[str],
        _names("webhook: namespaces excluded in the webhook configuration besides kube-system and its own"),
    ] = frozenset()
    extender_ops: Annotated[
        str | None,
        Option(
            "URL",
            parse_origin,
            "webhook: the extender's port for probes, to find pods that were placed without it; default: it is not "
            "asked",
        ),
    ] = None


def describe(settings: Settings) -> dict[str, Any]:
    """Return the settings as the start log shows them. Keys are given by path, so no setting holds a secret."""
    values = {name: getattr(settings, name) for name in settings.__struct_fields__}
    return {name: _format_value(value) for name, value in values.items()}


def _format_value(value: Any) -> Any:
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    return str(value) if isinstance(value, Address | pathlib.Path) else value


# --- the command line and the environment -----------------------------------------------------------------


def parse(server: ServerName, argv: Sequence[str] | None, environ: Mapping[str, str]) -> Settings:
    """Return the settings from `argv` (without the program's name; None: that of the process) and RAILWRIGHT_*.

    `argv` takes precedence. On an error, prints the option, the cause and the allowed values to stderr and raises
    SystemExit(2).
    """
    parser = _build_parser(server)
    namespace, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{_suggest(unknown[0])}")
    try:
        values = {
            name: value
            for name, option in _list_options().items()
            if (value := _parse_value(name, option, getattr(namespace, name), environ)) is not None
        }
    except ValueError as error:
        parser.error(str(error))
    parsed = Settings(server=server, **_list_defaults(server) | values)
    if problem := _find_conflict(parsed) or _find_file_problem(parsed):
        parser.error(problem)
    return parsed


@functools.cache
def _list_options() -> Mapping[str, Option]:
    hints = get_type_hints(Settings, include_extras=True)
    return {name: hint.__metadata__[0] for name, hint in hints.items() if hasattr(hint, "__metadata__")}


def _list_defaults(server: ServerName) -> dict[str, Any]:
    """Return the default of each setting that has one for this server."""
    own = {name: option.defaults[server] for name, option in _list_options().items() if option.defaults}
    return {field.name: field.default for field in msgspec.structs.fields(Settings) if not field.required} | own


def _format_flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _format_variable(name: str) -> str:
    return f"RAILWRIGHT_{name.upper()}"


def _parse_value(name: str, option: Option, argument: str | None, environ: Mapping[str, str]) -> Any:
    """Return the value of an option, None if it is given neither on the command line nor in the environment."""
    source, text = _format_flag(name), argument
    if text is None:  # an empty variable counts as unset, because charts write it so
        source, text = _format_variable(name), environ.get(_format_variable(name)) or None
    if text is None:
        return None
    try:
        return option.read(text)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


def _build_parser(server: ServerName) -> argparse.ArgumentParser:
    parser = _Parser(prog=f"railwright {server}", description=_DESCRIPTIONS[server], allow_abbrev=False)
    defaults = _list_defaults(server)
    for name, option in _list_options().items():
        owner, _, description = option.help.partition(": ")
        text = f"{description if owner == server else option.help} [{_format_variable(name)}]"
        text += f" (default {defaults[name]})" if defaults[name] else ""
        if owner in _DESCRIPTIONS and owner != server:
            text = argparse.SUPPRESS  # still accepted, so that its error says which server has it
        is_switch: dict[str, Any] = {"nargs": "?", "const": "true"} if option.read is parse_switch else {}
        parser.add_argument(_format_flag(name), dest=name, metavar=option.metavar, help=text, **is_switch)
    return parser


def _suggest(word: str) -> str:
    """Return the option that was probably meant, for a message; "" if none is similar."""
    flags = map(_format_flag, _list_options())
    matches = difflib.get_close_matches(word.partition("=")[0], flags, n=1) if word.startswith("--") else []
    return f"; did you mean {matches[0]}?" if matches else ""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\nTry '{self.prog} --help'; each option is also RAILWRIGHT_<NAME>.\n")


def _find_file_problem(parsed: Settings) -> str | None:
    for name, option in _list_options().items():
        path = getattr(parsed, name) if option.read in (parse_file, parse_file_name) else None
        if path is not None and (reason := _find_read_error(pathlib.Path(path))):
            return f"{_format_flag(name)} {path}: {reason}"
    return None


def _find_read_error(path: pathlib.Path) -> str | None:
    try:
        path.open("rb").close()
    except OSError as error:
        return error.strerror or type(error).__name__
    return None


# --- options that contradict each other or lack another ---------------------------------------------------


def _find_conflict(given: Settings) -> str | None:
    """Return the first conflict as a message with its fix, or None."""
    checks = (
        _find_transport_problem,
        _find_port_problem,
        _find_dashboard_problem,
        _find_volcano_problem,
        _find_source_problem,
        _find_leader_problem,
    )
    return next((problem for check in checks if (problem := check(given))), None)


def _find_transport_problem(given: Settings) -> str | None:
    if bool(given.tls_cert) != bool(given.tls_key):
        return "--tls-cert and --tls-key must be given together: add the missing one"
    if given.plain_http and (given.tls_cert or given.client_ca):
        return "--plain-http excludes --tls-cert, --tls-key and --client-ca: remove one or the others"
    if given.client_names and not given.client_ca:
        return "--client-names requires --client-ca: names are only checked in certificates issued by that CA"
    if not given.plain_http and not given.tls_cert:
        return "no serving certificate: give --tls-cert and --tls-key (see railwright certs issue), or --plain-http"
    if given.allow_plain_http and given.server != "extender":
        return "--allow-plain-http is for the extender only: the API server calls webhooks over TLS"
    for address in filter(None, (given.listen, given.volcano_listen)):
        if given.plain_http and not address.is_loopback and not given.allow_plain_http:
            extra = ", or add --allow-plain-http and a NetworkPolicy" if given.server == "extender" else ""
            return f"--plain-http on {address}: listen on loopback, such as 127.0.0.1:{address.port}{extra}"
    return None


def _find_port_problem(given: Settings) -> str | None:
    listeners = (
        ("--listen", given.listen),
        ("--ops-listen", given.ops_listen),
        ("--dashboard-listen", given.dashboard_listen),
        ("--volcano-listen", given.volcano_listen),
    )
    open_listeners = [(flag, address) for flag, address in listeners if address is not None]
    for (flag, first), (other_flag, second) in itertools.combinations(open_listeners, 2):
        if first.port == second.port != 0 and _do_overlap(first, second):
            return f"{flag} {first} and {other_flag} {second} use the same port: change one"
    return None


def _find_volcano_problem(given: Settings) -> str | None:
    if given.volcano_listen is not None and given.server != "extender":
        return "--volcano-listen is for the extender only: Volcano does not call the webhook"
    return None


def _find_dashboard_problem(given: Settings) -> str | None:
    listen = given.dashboard_listen
    if listen is None:
        return None
    if given.server != "extender":
        return "--dashboard-listen is for the extender only: the webhook does not track gangs"
    if given.snapshot and not listen.is_loopback:
        return f"--dashboard-listen {listen} with --snapshot: no API server can authorize viewers; use 127.0.0.1"
    return None


def _do_overlap(first: Address, second: Address) -> bool:
    wildcards = {"", "0.0.0.0", "::"}  # noqa: S104 - compared, not bound
    return first.host == second.host or bool(wildcards & {first.host, second.host})


def _find_source_problem(given: Settings) -> str | None:
    if given.snapshot and not given.policy and not given.kubeconfig:
        return "--snapshot replaces the cluster, so the policy must come from a file as well: add --policy FILE"
    return None


def _find_leader_problem(given: Settings) -> str | None:
    if given.leader_elect and given.server != "extender":
        return "--leader-elect is for the extender only: every replica of the webhook answers"
    if given.leader_elect and given.snapshot:
        return "--leader-elect requires an API server, which --snapshot replaces: remove one of them"
    if given.lease_seconds < 1:
        return f"--lease-seconds {given.lease_seconds:g}: a Lease lasts whole seconds; give 1 or more"
    return None
