"""`railwright certs`: issues and rotates certificates, and writes the configuration of their clients.

The names of the installation are imported with its options: they must not be read before another command has selected
an installation.
"""

import argparse
import datetime as dt
import pathlib

from certs import schedules
from railwright.cli import options, parsers

SCHEDULE_OPTIONS = {
    "ca": ("--ca-lifetime", "Validity of a CA; the next one is created when a third is left"),
    "serving": ("--serving-lifetime", "Validity of the servers' certificates; renewed when a third is left"),
    "client": ("--client-lifetime", "Validity of client certificates"),
    "overlap": ("--overlap", "Time for which both CAs are trusted before the new one is used, and again after"),
    "settle": ("--settle", "Time from a change of a caBundle until every API server has read it"),
    "propagation": ("--propagation", "Time from a change of a Secret until every server presents it"),
}
_MISSING = "a webhook configuration does not exist"
_DAYS_CA = 3650  # ten years: `certs issue` never replaces a CA automatically
_DAYS_SERVING = 365
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_LONGEST, _DIGITS = 36500 * 86400, 10  # seconds of a hundred years, and the digits of any number up to it


def _load_issue(_arguments: argparse.Namespace) -> parsers.Run:
    from railwright.cli.certificates import command

    return command.issue


def _load_rotate(_arguments: argparse.Namespace) -> parsers.Run:
    from railwright.cli.certificates import command

    return command.rotate


def _load_clients(_arguments: argparse.Namespace) -> parsers.Run:
    from railwright.cli.certificates import command

    return command.write_admission_configuration


def _configure(parser: parsers.Parser) -> None:
    """Define the subcommands and their options."""
    parser.add_choice("action", "ACTION")
    _configure_issue(
        parser.add_command(
            "issue",
            "Issue missing and expiring certificates; keep valid ones.",
            load=_load_issue,
            finding=_MISSING,
            examples=("railwright certs issue --out certs", "railwright certs issue --secrets"),
        )
    )
    _configure_rotate(
        parser.add_command(
            "rotate",
            "Renew the CA and the certificates in the cluster.",
            load=_load_rotate,
            finding=_MISSING,
            examples=("railwright certs rotate --clients", "railwright certs rotate --renew-ca"),
        )
    )
    _configure_clients(
        parser.add_command(
            "admission-config",
            "Write the files by which the API server and kube-scheduler authenticate.",
            load=_load_clients,
            examples=(
                "railwright certs admission-config --out admission",
                "railwright certs admission-config --out admission --directory /etc/kubernetes/admission",
            ),
        )
    )


def _configure_issue(parser: parsers.Parser) -> None:
    parser.add_argument(
        "--out", type=pathlib.Path, metavar="DIR", help="Write the files of CA, webhook, extender and client."
    )
    parser.add_argument("--secrets", action="store_true", help="Write Secrets and caBundle in the cluster.")
    _configure_cluster(parser)
    parser.add_argument(
        "--host", action="append", default=[], metavar="H", help="Additional DNS name or IP address of the servers."
    )
    parser.add_argument(
        "--days",
        type=_parse_days,
        metavar="N",
        default=_DAYS_SERVING,
        help="Serving certificate lifetime in days (default: %(default)s).",
    )
    parser.add_argument(
        "--ca-days", type=_parse_days, metavar="N", default=_DAYS_CA, help="CA lifetime in days (default: %(default)s)."
    )


def _configure_rotate(parser: parsers.Parser) -> None:
    from railwright.cluster import installed_names

    parser.add_argument("--watch", action="store_true", help="Repeat until stopped; of several replicas one is active.")
    parser.add_argument(
        "--clients", action="store_true", help="Also issue client certificates for the API server and kube-scheduler."
    )
    parser.add_argument("--renew-ca", action="store_true", help="Start replacing the CA now.")
    _configure_cluster(parser)
    parser.add_argument(
        "--host", action="append", default=[], metavar="H", help="Additional DNS name or IP address of the servers."
    )
    for name, (flag, text) in SCHEDULE_OPTIONS.items():
        default = getattr(schedules.Schedule(), name)
        parser.add_argument(
            flag,
            dest=name,
            type=parse_duration,
            default=default,
            metavar="TIME",
            help=f"{text} (default: {format_duration(default)}).",
        )
    parser.add_argument(
        "--every",
        type=parse_duration,
        default=dt.timedelta(seconds=3),
        metavar="TIME",
        help="Time between checks (default: 3s).",
    )
    parser.add_argument(
        "--lease", default=installed_names.CERTS, metavar="NAME", help="Name of the Lease (default: %(default)s)."
    )
    parser.add_argument(
        "--identity", metavar="NAME", help="Identity of this replica in the Lease (default: the host name)."
    )
    parser.add_argument(
        "--ops-listen",
        default=":8080",
        metavar="HOST:PORT",
        help="Address of probes and metrics (default: :8080).",
    )


def _configure_clients(parser: parsers.Parser) -> None:
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR", help="Directory to write to.")
    parser.add_argument(
        "--directory",
        default="/etc/kubernetes/railwright",
        metavar="DIR",
        help="Directory of these files on the API server's host (default: %(default)s).",
    )
    parser.add_argument(
        "--user",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="Host and port of a webhook that is registered by URL; repeatable.",
    )
    _configure_cluster(parser)


def _configure_cluster(parser: parsers.Parser) -> None:
    from railwright.cluster import installed_names

    options.add_namespace(
        parser, "Namespace of Services and Secrets (default: %(default)s).", installed_names.NAMESPACE
    )
    options.add_output(parser)
    options.add_cluster(parser.add_group("options for the cluster"))


def _parse_days(text: str) -> int:
    days = int(text)
    if not 1 <= days <= 36500:
        raise argparse.ArgumentTypeError(f"{text} days; give 1 to 36500")
    return days


def parse_duration(text: str) -> dt.timedelta:
    """Return the duration of a text such as 30d, 12h, 10m or 10s. Raises ArgumentTypeError."""
    number, unit = text[:-1], text[-1:]
    if not (number.isascii() and number.isdecimal()) or unit not in _UNITS:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time; write 30d, 12h, 10m or 10s")
    seconds = int(number[:_DIGITS]) * _UNITS[unit]
    if len(number) > _DIGITS or seconds > _LONGEST:
        raise argparse.ArgumentTypeError(f"{text} is longer than a hundred years")
    return dt.timedelta(seconds=seconds)


def format_duration(value: dt.timedelta) -> str:
    """Return the shortest text that `parse_duration` reads as this duration."""
    seconds = int(value.total_seconds())
    unit = next(unit for unit, length in _UNITS.items() if seconds % length == 0)
    return f"{seconds // _UNITS[unit]}{unit}"


CERTS = parsers.Command("Issue and rotate the certificates of the servers and their clients.", _configure)
