"""The options of both servers, as in docs/interface.md 6. Files are opened only to check that they can be read."""

import argparse
import functools
import ipaddress
import math
import pathlib
import re
from collections.abc import Sequence
from typing import Literal

import msgspec

ServerName = Literal["webhook", "extender"]
_ADDRESS = re.compile(r"(\[(?P<ipv6>[^\s\[\]]*)\]|(?P<host>[^\s:\[\]]*)):(?P<port>\d{1,5})", re.ASCII)


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


class Settings(argparse.Namespace):
    """The effective options of one server. None means not set."""

    server: ServerName
    listen: Address
    ops_listen: Address
    dashboard_listen: Address | None = None
    volcano_listen: Address | None = None
    tls_cert: pathlib.Path | None
    tls_key: pathlib.Path | None
    client_ca: pathlib.Path | None
    client_names: frozenset[str]  # empty: any name that the CA has certified
    plain_http: bool
    allow_plain_http: bool = False
    kubeconfig: pathlib.Path | None
    policy: pathlib.Path | None
    snapshot: pathlib.Path | None
    assume_seconds: float
    drain_seconds: float
    stale_seconds: float


def parse(server: ServerName, argv: Sequence[str] | None = None) -> Settings:
    """Return the settings from `argv` (without the program's name; None: the arguments of this process).

    On an error, prints the option, the cause and the fix to stderr and raises SystemExit(2).
    """
    parser = build_parser(server)
    options = parser.parse_args(argv, namespace=Settings())
    if problem := _find_problem(options):
        parser.error(problem)
    return options


def build_parser(server: ServerName) -> argparse.ArgumentParser:
    """Return the parser of a server's command line. Parsing opens no file."""
    is_extender = server == "extender"
    parser = argparse.ArgumentParser(
        prog=f"railwright {server}",
        usage="%(prog)s [OPTION]...",
        description="Run the scheduler extender, which scores nodes for gangs of Volcano and kube-scheduler."
        if is_extender
        else "Run the admission webhook, which gives opted-in pods their RDMA network.",
        allow_abbrev=False,
    )
    parser.set_defaults(server=server)
    add_address = functools.partial(parser.add_argument, metavar="HOST:PORT", type=parse_address)
    add_file = functools.partial(parser.add_argument, metavar="FILE", type=pathlib.Path)
    add_seconds = functools.partial(parser.add_argument, metavar="SECONDS", type=_parse_seconds)
    add_switch = functools.partial(parser.add_argument, action="store_true")
    text = "address of the service (default %(default)s); port 0 chooses one, printed as 'listening on HOST:PORT'"
    add_address("--listen", default=Address("", 8713 if is_extender else 9443), help=text)
    text = "address of probes and metrics, plain HTTP (default %(default)s)"
    add_address("--ops-listen", default=Address("", 8080), help=text)
    if is_extender:
        add_address("--dashboard-listen", help="address of the dashboard; default: no dashboard")
        text = "address of Volcano's paths, without client certificates; default: that of --listen"
        add_address("--volcano-listen", help=text)
    add_file("--tls-cert", help="serving certificate with its chain, PEM; reloaded on change")
    add_file("--tls-key", help="private key of the serving certificate, PEM; reloaded on change")
    text = "CA bundle, PEM; API servers and schedulers must present a certificate issued by it"
    add_file("--client-ca", help=text)
    text = "accept only client certificates with one of these common names or SANs"
    parser.add_argument("--client-names", metavar="NAME,...", type=_parse_names, default=frozenset(), help=text)
    add_switch("--plain-http", help="serve without TLS; allowed on loopback only")
    if is_extender:
        add_switch("--allow-plain-http", help="allow --plain-http on addresses other than loopback")
    add_file("--kubeconfig", help="kubeconfig of the API server; default: the pod's service account")
    add_file("--policy", help="read the policy from a file instead of the cluster")
    add_file("--snapshot", help="read cluster objects from a file instead of an API server")
    text = "how long the server still answers after SIGTERM, while it is not ready (default %(default)s)"
    add_seconds("--drain-seconds", default=10.0, help=text)
    if is_extender:
        text = "how long devices stay reserved for a placed pod whose binding is not seen (default %(default)s)"
        add_seconds("--assume-seconds", default=30.0, help=text)
        text = "report not ready after so long without contact with the API server (default %(default)s)"
        add_seconds("--stale-seconds", default=300.0, help=text)
    return parser


# --- values -----------------------------------------------------------------------------------------------


def parse_address(text: str) -> Address:
    """Parse HOST:PORT. Raises ArgumentTypeError with the expected form."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65535:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not HOST:PORT with a port from 0 to 65535, such as :9443, 127.0.0.1:0 or, with an IPv6 "
            "address in brackets, [::1]:9443"
        )
    return Address(match["ipv6"] or match["host"] or "", int(match["port"]))


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not (math.isfinite(seconds) and seconds >= 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return seconds


def _parse_names(text: str) -> frozenset[str]:
    """Return the names in a comma-separated list. An empty list is an error, because it would admit every client."""
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise argparse.ArgumentTypeError(f"{text!r} contains no name; write NAME,NAME or leave the option out")
    return names


def _find_problem(given: Settings) -> str | None:
    """Return which options contradict each other or lack another, with the fix, or which file cannot be read."""
    if given.plain_http and (given.tls_cert or given.tls_key or given.client_ca):
        return "--plain-http excludes --tls-cert, --tls-key and --client-ca: remove --plain-http or the others"
    if not given.plain_http and not (given.tls_cert and given.tls_key):
        return "no serving certificate: give both --tls-cert and --tls-key, or --plain-http"
    if given.client_names and not given.client_ca:
        return "--client-names requires --client-ca: names are only checked in certificates issued by that CA"
    for address in filter(None, (given.listen, given.volcano_listen)):
        if given.plain_http and not address.is_loopback and not given.allow_plain_http:
            extra = ", or add --allow-plain-http and a NetworkPolicy" if given.server == "extender" else ""
            return (
                f"--plain-http does not encrypt {address}: listen on loopback, such as 127.0.0.1:{address.port}{extra}"
            )
    if given.snapshot and (viewed := given.dashboard_listen) and not viewed.is_loopback:
        return f"--dashboard-listen {viewed} with --snapshot: no API server can authorize viewers; use 127.0.0.1"
    if given.snapshot and not given.policy and not given.kubeconfig:
        return "--snapshot replaces the cluster, so the policy must come from a file as well: add --policy FILE"
    return _find_unreadable_file(given)


def _find_unreadable_file(given: Settings) -> str | None:
    for name, path in vars(given).items():
        if isinstance(path, pathlib.Path):
            try:
                path.open("rb").close()
            except (OSError, ValueError) as error:
                return f"--{name.replace('_', '-')} {path}: {getattr(error, 'strerror', None) or error}"
    return None
