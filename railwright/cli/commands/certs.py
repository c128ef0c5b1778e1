"""`railwright certs`: certificates issued once, rotated for ever, and handed to callers.

Owns the arguments and which exit code an error is. What the actions do is `cli/certificates`'.
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
HELP = "issue and rotate certificates of the servers and their callers"

_DAYS_AUTHORITY = 3650  # ten years: by hand, an authority is replaced on purpose only
_DAYS_LEAF = 365
_USAGE = 2


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _configure_issue(actions.add_parser("issue", help="make what is missing or ending; keep what is still good"))
    _configure_rotate(actions.add_parser("rotate", help="keep authority and certificates in the cluster fresh"))
    _configure_callers(
        actions.add_parser("admission-config", help="files with which the API server and kube-scheduler are known")
    )


def run(arguments: argparse.Namespace) -> int:
    """Run one action; 0 done, 1 done with something to fix, 2 usage or unreadable input. Raises ClusterError."""
    from certs import issue  # noqa: PLC0415 - cryptography is not needed to parse arguments

    if arguments.action == "issue" and arguments.out is None and not arguments.secrets:
        return _fail("nowhere to write: give --out DIR, --secrets or both")
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


def _configure_issue(one: argparse.ArgumentParser) -> None:
    one.add_argument("--out", type=pathlib.Path, metavar="DIR", help="write ca, webhook, extender, client files")
    one.add_argument("--secrets", action="store_true", help="write Secrets and fill caBundle in the cluster")
    _configure_cluster(one)
    one.add_argument("--host", action="append", default=[], metavar="H", help="further name or address of servers")
    one.add_argument("--days", type=_days, default=_DAYS_LEAF, help="life of a leaf (default %(default)s)")
    one.add_argument("--authority-days", type=_days, default=_DAYS_AUTHORITY, help="default %(default)s")


def _configure_rotate(one: argparse.ArgumentParser) -> None:
    from railwright.cli.certificates import schedules  # noqa: PLC0415 - as in run

    one.add_argument("--watch", action="store_true", help="for ever, in one of several replicas at a time")
    one.add_argument("--callers", action="store_true", help="also certificates for the API server and kube-scheduler")
    one.add_argument("--renew-authority", action="store_true", help="begin to replace the authority now")
    _configure_cluster(one)
    one.add_argument("--host", action="append", default=[], metavar="H", help="further name or address of servers")
    schedules.configure(one)
    one.add_argument(
        "--every", type=schedules.span, default=schedules.span("3s"), metavar="TIME", help="between looks (default 3s)"
    )
    one.add_argument("--lease", default="railwright-certs", metavar="NAME", help="default %(default)s")
    one.add_argument("--identity", metavar="NAME", help="of this replica (default: the host's name)")
    one.add_argument(
        "--ops-listen", type=_address, default=":8080", metavar="HOST:PORT", help="probes and metrics (default :8080)"
    )


def _configure_callers(one: argparse.ArgumentParser) -> None:
    one.add_argument("--out", type=pathlib.Path, required=True, metavar="DIR", help="where to write them")
    one.add_argument(
        "--directory",
        default="/etc/kubernetes/railwright",
        metavar="DIR",
        help="where the API server will find them (default %(default)s)",
    )
    one.add_argument(
        "--user", action="append", default=[], metavar="HOST:PORT", help="a webhook registered by URL, in addition"
    )
    _configure_cluster(one)


def _configure_cluster(one: argparse.ArgumentParser) -> None:
    one.add_argument("--namespace", default=names.NAMESPACE, help="of Services and Secrets (default %(default)s)")
    one.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, ~/.kube/config, or in-cluster")
    one.add_argument("-o", "--output", choices=["text", "json"], default="text")


def _days(text: str) -> int:
    days = int(text)
    if not 1 <= days <= 36500:
        raise argparse.ArgumentTypeError(f"{text} days; give 1 to 36500")
    return days


def _address(text: str) -> object:
    from railwright.serving import settings  # noqa: PLC0415 - for --watch alone

    try:
        return settings.address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _fail(message: str) -> int:
    print(f"railwright certs: {message}", file=sys.stderr)
    return _USAGE
