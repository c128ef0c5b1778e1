"""Parses the options of both servers: command line, environment and defaults, as in docs/interface.md 6.

Opens files only to check that they can be read.
"""

import argparse
import difflib
import itertools
import math
import pathlib
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from railwright.fabric import quantity
from railwright.serving import addresses, settings

_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"", "0", "false", "no", "off"})


def parse(server: settings.ServerName, argv: Sequence[str] | None, environ: Mapping[str, str]) -> settings.Settings:
    """Return the settings from `argv` (without the program's name; None: that of the process) and RAILWRIGHT_*.

    `argv` takes precedence. On an error, prints the option, the cause and the allowed values to stderr and raises
    SystemExit(2).
    """
    parser = _build_parser(server)
    namespace, unknown = parser.parse_known_args(argv)
    if unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{_suggest(unknown[0])}")
    arguments = vars(namespace)
    values: dict[str, Any] = {}
    for option in _OPTIONS:
        try:
            values[option.name] = _parse_value(option, arguments[option.name], environ, server)
        except ValueError as error:
            parser.error(str(error))
    parsed = settings.Settings(server=server, **values)
    if problem := _find_conflict(parsed) or _find_file_problem(parsed):
        parser.error(problem)
    return parsed


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

    def get_default(self, server: settings.ServerName) -> Any:
        return self.default[server] if isinstance(self.default, dict) else self.default


def _parse_value(option: _Option, argument: str | None, environ: Mapping[str, str], server: settings.ServerName) -> Any:
    source, text = option.flag, argument
    if text is None:  # an empty variable counts as unset, because charts write it so
        source, text = option.variable, environ.get(option.variable) or None
    if text is None:
        return option.get_default(server)
    try:
        return option.read(text)
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from None


# --- values: each function raises ValueError with the expected form ---------------------------------------


def parse_bytes(text: str) -> int:
    """Return a positive number of bytes, written as a Kubernetes quantity."""
    try:
        size = quantity.parse_units(text)
    except quantity.InvalidQuantityError:
        size = 0
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


def parse_endpoint(text: str) -> str:
    """Return the URL that spans are posted to. A path is kept; without one, OTLP's default path is added."""
    if "@" in text:
        raise ValueError("a URL with credentials would be logged: put them into OTEL_EXPORTER_OTLP_HEADERS")
    url = _parse_url(text, "http(s)://HOST[:PORT][/PATH], such as http://otel-collector.monitoring:4318")
    return url.geturl() if url.path.strip("/") else f"{url.scheme}://{url.netloc}/v1/traces"


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

_OPTIONS = (
    _Option(
        "listen",
        addresses.parse_address,
        {"webhook": addresses.Address("", 9443), "extender": addresses.Address("", 8713)},
        "HOST:PORT",
        "address of the service; port 0 chooses a free port, printed as 'listening on HOST:PORT'",
    ),
    _Option(
        "ops_listen",
        addresses.parse_address,
        addresses.Address("", 8080),
        "HOST:PORT",
        "address of probes and metrics, plain HTTP",
    ),
    _Option(
        "dashboard_listen",
        addresses.parse_address,
        None,
        "HOST:PORT",
        "extender: address of the dashboard; default: no dashboard",
    ),
    _Option(
        "volcano_listen",
        addresses.parse_address,
        None,
        "HOST:PORT",
        "extender: address of Volcano's paths, without client certificates; default: that of --listen",
    ),
    _Option(
        "tls_cert",
        parse_file,
        None,
        "FILE",
        "serving certificate with its chain, PEM; reloaded on change",
    ),
    _Option(
        "tls_key",
        parse_file,
        None,
        "FILE",
        "private key of the serving certificate, PEM; reloaded on change",
    ),
    _Option(
        "client_ca",
        parse_file,
        None,
        "FILE",
        "CA bundle, PEM; API servers and schedulers must present a certificate issued by it",
    ),
    _Option(
        "client_names",
        parse_names,
        frozenset(),
        "NAME,...",
        "accept only client certificates with one of these common names or SANs",
    ),
    _Option("plain_http", parse_switch, False, "", "serve without TLS; allowed on loopback only"),
    _Option(
        "allow_plain_http",
        parse_switch,
        False,
        "",
        "extender: allow --plain-http on addresses other than loopback",
    ),
    _Option(
        "kubeconfig",
        parse_file_name,
        None,
        "FILE",
        "kubeconfig of the API server; default: the pod's service account",
    ),
    _Option(
        "policy",
        parse_file,
        None,
        "FILE",
        "read the policy from a file instead of the cluster; reloaded on change",
    ),
    _Option(
        "snapshot",
        parse_file,
        None,
        "FILE",
        "read cluster objects from a file instead of an API server; reloaded on change",
    ),
    _Option(
        "max_body",
        parse_bytes,
        {"webhook": settings.WEBHOOK_BODY, "extender": settings.EXTENDER_BODY},
        "BYTES",
        "maximum size of a request body; larger ones get 413",
    ),
    _Option(
        "assume_seconds",
        parse_seconds,
        30.0,
        "SECONDS",
        "extender: how long an allocation without a binding stays reserved",
    ),
    _Option(
        "drain_seconds",
        parse_seconds,
        10.0,
        "SECONDS",
        "how long the server still answers after SIGTERM, while it reports not ready",
    ),
    _Option(
        "leader_elect",
        parse_switch,
        False,
        "",
        "extender: elect a leader by a Lease; only the leader answers schedulers",
    ),
    _Option(
        "lease_seconds",
        parse_seconds,
        15.0,
        "SECONDS",
        "extender: duration of the Lease, which is how long a failover takes",
    ),
    _Option(
        "stale_seconds",
        parse_seconds,
        300.0,
        "SECONDS",
        "extender: report not ready if a watch cache is older than this",
    ),
    _Option(
        "unused_template_seconds",
        parse_seconds,
        300.0,
        "SECONDS",
        "webhook: remove a ResourceClaimTemplate that no pod has named for this time",
    ),
    _Option(
        "excluded_namespaces",
        parse_names,
        frozenset(),
        "NAME,...",
        "webhook: namespaces excluded in the webhook configuration besides kube-system and its own",
    ),
    _Option(
        "extender_ops",
        parse_origin,
        None,
        "URL",
        "webhook: the extender's port for probes, to find pods that were placed without it; default: it is not asked",
    ),
    _Option(
        "otlp_endpoint",
        parse_endpoint,
        None,
        "URL",
        "endpoint for traces, OTLP over HTTP; requires the extra `tracing`",
    ),
)
_DESCRIPTIONS = {
    "webhook": "Run the admission webhook, which gives opted-in pods their RDMA network.",
    "extender": "Run the scheduler extender, which scores nodes for gangs of Volcano and kube-scheduler.",
}


def _build_parser(server: settings.ServerName) -> argparse.ArgumentParser:
    parser = _Parser(prog=f"railwright {server}", description=_DESCRIPTIONS[server], allow_abbrev=False)
    for option in _OPTIONS:
        default = option.get_default(server)
        owner, _, description = option.help.partition(": ")
        text = f"{description if owner == server else option.help} [{option.variable}]"
        text += f" (default {default})" if default else ""
        if owner in _DESCRIPTIONS and owner != server:
            text = argparse.SUPPRESS  # still accepted, so that its error says which server has it
        if option.read is parse_switch:
            parser.add_argument(option.flag, dest=option.name, nargs="?", const="true", metavar="BOOL", help=text)
        else:
            parser.add_argument(option.flag, dest=option.name, metavar=option.metavar, help=text)
    return parser


def _suggest(word: str) -> str:
    """Return the option that was probably meant, for a message; "" if none is similar."""
    flags = [option.flag for option in _OPTIONS]
    matches = difflib.get_close_matches(word.partition("=")[0], flags, n=1) if word.startswith("--") else []
    return f"; did you mean {matches[0]}?" if matches else ""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\nTry '{self.prog} --help'; each option is also RAILWRIGHT_<NAME>.\n")


def _find_file_problem(parsed: settings.Settings) -> str | None:
    for option in _OPTIONS:
        path = getattr(parsed, option.name) if option.read in (parse_file, parse_file_name) else None
        if path is not None and (reason := _find_read_error(pathlib.Path(path))):
            return f"{option.flag} {path}: {reason}"
    return None


def _find_read_error(path: pathlib.Path) -> str | None:
    try:
        path.open("rb").close()
    except OSError as error:
        return error.strerror or type(error).__name__
    return None


# --- options that contradict each other or lack another ---------------------------------------------------


def _find_conflict(given: settings.Settings) -> str | None:
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


def _find_transport_problem(given: settings.Settings) -> str | None:
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


def _find_port_problem(given: settings.Settings) -> str | None:
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


def _find_volcano_problem(given: settings.Settings) -> str | None:
    if given.volcano_listen is not None and given.server != "extender":
        return "--volcano-listen is for the extender only: Volcano does not call the webhook"
    return None


def _find_dashboard_problem(given: settings.Settings) -> str | None:
    listen = given.dashboard_listen
    if listen is None:
        return None
    if given.server != "extender":
        return "--dashboard-listen is for the extender only: the webhook does not track gangs"
    if given.snapshot and not listen.is_loopback:
        return f"--dashboard-listen {listen} with --snapshot: no API server can authorize viewers; use 127.0.0.1"
    return None


def _do_overlap(first: addresses.Address, second: addresses.Address) -> bool:
    wildcards = {"", "0.0.0.0", "::"}  # noqa: S104 - compared, not bound
    return first.host == second.host or bool(wildcards & {first.host, second.host})


def _find_source_problem(given: settings.Settings) -> str | None:
    if given.snapshot and not given.policy and not given.kubeconfig:
        return "--snapshot replaces the cluster, so the policy must come from a file as well: add --policy FILE"
    return None


def _find_leader_problem(given: settings.Settings) -> str | None:
    if given.leader_elect and given.server != "extender":
        return "--leader-elect is for the extender only: every replica of the webhook answers"
    if given.leader_elect and given.snapshot:
        return "--leader-elect requires an API server, which --snapshot replaces: remove one of them"
    if given.lease_seconds < 1:
        return f"--lease-seconds {given.lease_seconds:g}: a Lease lasts whole seconds; give 1 or more"
    return None
