"""Parses the options of both servers: command line, environment and defaults, as in docs/interface.md 6.

Opens files only to check that they can be read.
"""

import argparse
import difflib
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from railwright.serving import addresses, option_conflicts, option_values, settings


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
    if problem := option_conflicts.find_conflict(parsed) or _find_file_problem(parsed):
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
        option_values.parse_file,
        None,
        "FILE",
        "serving certificate with its chain, PEM; reloaded on change",
    ),
    _Option(
        "tls_key",
        option_values.parse_file,
        None,
        "FILE",
        "private key of the serving certificate, PEM; reloaded on change",
    ),
    _Option(
        "client_ca",
        option_values.parse_file,
        None,
        "FILE",
        "CA bundle, PEM; API servers and schedulers must present a certificate issued by it",
    ),
    _Option(
        "client_names",
        option_values.parse_names,
        frozenset(),
        "NAME,...",
        "accept only client certificates with one of these common names or SANs",
    ),
    _Option("plain_http", option_values.parse_switch, False, "", "serve without TLS; allowed on loopback only"),
    _Option(
        "allow_plain_http",
        option_values.parse_switch,
        False,
        "",
        "extender: allow --plain-http on addresses other than loopback",
    ),
    _Option(
        "kubeconfig",
        option_values.parse_file_name,
        None,
        "FILE",
        "kubeconfig of the API server; default: the pod's service account",
    ),
    _Option(
        "policy",
        option_values.parse_file,
        None,
        "FILE",
        "read the policy from a file instead of the cluster; reloaded on change",
    ),
    _Option(
        "snapshot",
        option_values.parse_file,
        None,
        "FILE",
        "read cluster objects from a file instead of an API server; reloaded on change",
    ),
    _Option(
        "max_body",
        option_values.parse_bytes,
        {"webhook": settings.WEBHOOK_BODY, "extender": settings.EXTENDER_BODY},
        "BYTES",
        "maximum size of a request body; larger ones get 413",
    ),
    _Option(
        "assume_seconds",
        option_values.parse_seconds,
        30.0,
        "SECONDS",
        "extender: how long an allocation without a binding stays reserved",
    ),
    _Option(
        "drain_seconds",
        option_values.parse_seconds,
        10.0,
        "SECONDS",
        "how long the server still answers after SIGTERM, while it reports not ready",
    ),
    _Option(
        "leader_elect",
        option_values.parse_switch,
        False,
        "",
        "extender: elect a leader by a Lease; only the leader answers schedulers",
    ),
    _Option(
        "lease_seconds",
        option_values.parse_seconds,
        15.0,
        "SECONDS",
        "extender: duration of the Lease, which is how long a failover takes",
    ),
    _Option(
        "stale_seconds",
        option_values.parse_seconds,
        300.0,
        "SECONDS",
        "extender: report not ready if a watch cache is older than this",
    ),
    _Option(
        "unused_template_seconds",
        option_values.parse_seconds,
        300.0,
        "SECONDS",
        "webhook: remove a ResourceClaimTemplate that no pod has named for this time",
    ),
    _Option(
        "excluded_namespaces",
        option_values.parse_names,
        frozenset(),
        "NAME,...",
        "webhook: namespaces excluded in the webhook configuration besides kube-system and its own",
    ),
    _Option(
        "extender_ops",
        option_values.parse_origin,
        None,
        "URL",
        "webhook: the extender's port for probes, to find pods that were placed without it; default: it is not asked",
    ),
    _Option(
        "otlp_endpoint",
        option_values.parse_endpoint,
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
        if option.read is option_values.parse_switch:
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
        path = (
            getattr(parsed, option.name)
            if option.read in (option_values.parse_file, option_values.parse_file_name)
            else None
        )
        if path is not None and (reason := _find_read_error(pathlib.Path(path))):
            return f"{option.flag} {path}: {reason}"
    return None


def _find_read_error(path: pathlib.Path) -> str | None:
    try:
        path.open("rb").close()
    except OSError as error:
        return error.strerror or type(error).__name__
    return None
