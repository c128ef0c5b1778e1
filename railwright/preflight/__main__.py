"""`railwright preflight`: checks that the rails of this container are ready for NCCL; one line and an exit code.

Parses the command line, waits, and prints the line to the terminal and to the termination log, where `kubectl
describe pod` shows it. A second line there names the rails whose NIC is at fault, so that new pods avoid them.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence

from railwright.preflight import allocation, checks, expected, report
from railwright.preflight import host as hosts

OK, FINDINGS = 0, 1  # docs/interface.md 6; argparse returns 2 for wrong usage
_TERMINATION_LOG = "/dev/termination-log"  # Kubernetes' terminationMessagePath
_PAUSE = 0.5  # seconds between two checks; reading a GID table of 256 entries takes about ten milliseconds


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Check, print the result, and return the exit code: 0 ready (or --warn), 1 problems, 2 wrong usage."""
    try:
        arguments = _build_parser().parse_args(argv)
    except SystemExit as exit_error:  # argparse, after --help or a usage message
        return exit_error.code if isinstance(exit_error.code, int) else 2
    host = hosts.Host(arguments.root)
    result = _wait(host, arguments, environment)
    line = f"railwright preflight {report.format_line(result, warn=arguments.warn)}"
    _print_report(result, line, arguments.output)
    _write_termination_log(host, "\n".join(filter(None, (line, report.format_broken(result)))))
    return OK if arguments.warn or not result.problems else FINDINGS


def _wait(host: hosts.Host, arguments: argparse.Namespace, environment: Mapping[str, str]) -> report.Report:
    """Check until there is no problem or the time is over: GIDs and active ports appear moments after address and
    link.
    """
    deadline = time.monotonic() + arguments.wait
    while True:
        allocated = allocation.read(host, arguments.allocation) if arguments.allocation else None
        rails = tuple(arguments.rail)
        hca_value = arguments.hca if arguments.hca is not None else expected.get_value(expected.HCA, environment, host)
        expectations = expected.Expected(
            transport=arguments.transport,
            rails=allocation.name_rails(allocated, rails) if allocated is not None else rails,
            hca=hca_value or None,
            mtu=arguments.mtu,
            root=not arguments.non_root,
            gid_index=expected.get_gid_index(environment, host),
            ip_version=expected.get_ip_version(environment, host),
        )
        result = checks.check(host, expectations, allocated)
        if not result.problems or time.monotonic() >= deadline:
            return result
        time.sleep(_PAUSE)


def _print_report(result: report.Report, line: str, form: str) -> None:
    if form == "json":
        tree = {
            "ready": not result.problems,
            "problems": [row._asdict() for row in result.problems],
            "rails": [row._asdict() for row in result.rails],
        }
        print(json.dumps(tree, indent=2))
    if result.problems or form != "json":
        print(line, file=sys.stderr if result.problems else sys.stdout)


def _write_termination_log(host: hosts.Host, message: str) -> None:
    log = host.resolve(_TERMINATION_LOG)
    if log.is_file():
        try:
            log.write_text(f"{message}\n", encoding="utf-8")
        except OSError as error:
            print(f"{_TERMINATION_LOG}: {error.strerror}", file=sys.stderr)


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="railwright preflight", description="Checks that the rails of this container are ready for NCCL."
    )
    parser.add_argument("--transport", required=True, choices=list(expected.RULES), help="how the fabric carries RDMA")
    parser.add_argument(
        "--rail",
        action="append",
        default=[],
        type=_parse_rail,
        metavar="NAME[,device=DEVICE][,interface=INTERFACE]",
        help="a rail, in order; default: every RDMA device this container can use",
    )
    parser.add_argument(
        "--allocation",
        metavar="FILE",
        help="annotation railwright.io/placement as a file: checks that the container has the devices of its claims",
    )
    parser.add_argument("--hca", help="devices that NCCL may use; default: NCCL_IB_HCA as NCCL reads it")
    parser.add_argument("--mtu", type=int, default=0, help="smallest allowed MTU of every rail's interface")
    parser.add_argument(
        "--non-root",
        action="store_true",
        help="the ranks do not run as root: ignore capabilities",
    )
    parser.add_argument(
        "--wait",
        type=float,
        default=0,
        metavar="SECONDS",
        help="repeat failed checks for this long; default 0",
    )
    parser.add_argument("--warn", action="store_true", help="print problems as warnings and exit 0")
    parser.add_argument("--root", default="/", help="check a recorded file tree instead of /")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="output format")
    return parser


def _parse_rail(text: str) -> expected.Rail:
    try:
        return expected.parse_rail(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
