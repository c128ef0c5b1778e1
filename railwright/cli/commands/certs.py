"""`railwright certs`: issues and rotates certificates, and writes client configurations for callers.

Parses options and sets the exit code. The actions are in `cli/certificates`.
"""

import argparse
import asyncio
import pathlib
import sys
from typing import TYPE_CHECKING

from railwright.fabric import names

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

NAME = "certs"
HELP = "issue and rotate the certificates of the servers and their callers"

_DAYS_CA = 3650  # ten years: `certs issue` never replaces a CA automatically
_DAYS_SERVING = 365
_USAGE = 2


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _configure_issue(actions.add_parser("issue", help="issue missing and expiring certificates; keep valid ones"))
    _configure_rotate(actions.add_parser("rotate", help="renew the CA and the certificates in the cluster"))
    _configure_callers(
        actions.add_parser(
            "admission-config", help="write the files by which the API server and kube-scheduler authenticate"
        )
    )


def run(arguments: argparse.Namespace) -> int:
    """Run one action. Return 0 if done, 1 if done with something to fix, 2 for wrong usage or unreadable input.

    Raises ClusterError.
    """
    from certs import issue  # noqa: PLC0415 - cryptography is not needed to parse arguments

    if arguments.action == "issue" and arguments.out is None and not arguments.secrets:
        return _fail("no destination: give --out DIR, --secrets or both")
    try:
        for host in getattr(arguments, "host", ()):
            issue.general_name(host)
        return asyncio.run(_action(arguments)(arguments))
    except OSError as error:
        return _fail(": ".join(map(str, filter(None, (error.filename, error.strerror)))) or str(error))
    except ValueError as error:
        return _fail(str(error))


def _action(arguments: argparse.Namespace) -> "Callable[[argparse.Namespace], Coroutine[None, None, int]]":
    from railwright.cli.certificates import callers, issuing, rotating  # noqa: PLC0415 - as in run

    if arguments.action == "rotate" and arguments.watch:
        from railwright.cli.certificates import watching  # noqa: PLC0415 - a server's imports

        return watching.watch
    return {"issue": issuing.run, "rotate": rotating.rotate, "admission-config": callers.write}[arguments.action]


def _configure_issue(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=pathlib.Path, metavar="DIR", help="write the files of CA, webhook, extender and client"
    )
    parser.add_argument("--secrets", action="store_true", help="write Secrets and caBundle in the cluster")
    _configure_cluster(parser)
    parser.add_argument(
        "--host", action="append", default=[], metavar="H", help="additional DNS name or IP address of the servers"
    )
    parser.add_argument(
        "--days", type=_days, default=_DAYS_SERVING, help="serving certificate lifetime in days (default %(default)s)"
    )
    parser.add_argument(
        "--authority-days", type=_days, default=_DAYS_CA, help="CA lifetime in days (default %(default)s)"
    )


def _configure_rotate(parser: argparse.ArgumentParser) -> None:
    from railwright.cli.certificates import schedules  # noqa: PLC0415 - as in run

    parser.add_argument("--watch", action="store_true", help="repeat until stopped; of several replicas one is active")
    parser.add_argument(
        "--callers", action="store_true", help="also issue client certificates for the API server and kube-scheduler"
    )
    parser.add_argument("--renew-authority", action="store_true", help="start replacing the CA now")
    _configure_cluster(parser)
    parser.add_argument(
        "--host", action="append", default=[], metavar="H", help="additional DNS name or IP address of the servers"
    )
    schedules.configure(parser)
    parser.add_argument(
        "--every",
        type=schedules.span,
        default=schedules.span("3s"),
        metavar="TIME",
        help="time between checks (default 3s)",
    )
    parser.add_argument(
        "--lease", default="railwright-certs", metavar="NAME", help="name of the Lease (default %(default)s)"
    )
    parser.add_argument(
        "--identity", metavar="NAME", help="identity of this replica in the Lease (default: the host name)"
    )
    parser.add_argument(
        "--ops-listen",
        type=_address,
        default=":8080",
        metavar="HOST:PORT",
        help="address of probes and metrics (default :8080)",
    )


def _configure_callers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR", help="directory to write to")
    parser.add_argument(
        "--directory",
        default="/etc/kubernetes/railwright",
        metavar="DIR",
        help="directory of these files on the API server's host (default %(default)s)",
    )
    parser.add_argument(
        "--user",
        action="append",
        default=[],
        metavar="HOST:PORT",
        help="host and port of a webhook that is registered by URL; repeatable",
    )
    _configure_cluster(parser)


def _configure_cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--namespace", default=names.NAMESPACE, help="namespace of Services and Secrets (default %(default)s)"
    )
    parser.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, ~/.kube/config, or in-cluster")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text")


def _days(text: str) -> int:
    days = int(text)
    if not 1 <= days <= 36500:
        raise argparse.ArgumentTypeError(f"{text} days; give 1 to 36500")
    return days


def _address(text: str) -> object:
    from railwright.serving import settings  # noqa: PLC0415 - only --watch needs it

    try:
        return settings.address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _fail(message: str) -> int:
    print(f"railwright certs: {message}", file=sys.stderr)
    return _USAGE
