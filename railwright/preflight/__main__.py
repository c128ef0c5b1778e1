"""`railwright preflight`: are the rails of this container ready for NCCL? One line, and an exit code.

Owns the command line, the waiting and where the line goes: the terminal, and the termination log, so that
`kubectl describe pod` shows it.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence

from railwright.preflight import checks, expected, sentence, variables
from railwright.preflight import host as hosts

OK, FINDINGS = 0, 1  # CONTRACT section 6; argparse answers 2 for usage
_TERMINATION_LOG = "/dev/termination-log"  # Kubernetes' terminationMessagePath
_PAUSE = 0.5  # seconds between two looks; reading a GID table of 256 entries takes about ten milliseconds


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Check, tell, and answer the exit code: 0 ready (or --warn), 1 something is wrong, 2 usage."""
    try:
        arguments = _parser().parse_args(argv)
    except SystemExit as leaving:  # argparse, after --help or a usage message
        return leaving.code if isinstance(leaving.code, int) else 2
    host = hosts.Host(arguments.root)
    report = _wait(host, arguments, environment)
    told = f"railwright preflight {sentence.line(report, warn=arguments.warn)}"
    _show(report, told, arguments.output)
    _leave(host, told)
    return OK if arguments.warn or not report.problems else FINDINGS


def _wait(host: hosts.Host, arguments: argparse.Namespace, environment: Mapping[str, str]) -> checks.Report:
    """Look until all is well or the time is over: a GID follows its address, an active port its cable, by moments."""
    deadline = time.monotonic() + arguments.wait
    while True:
        chosen = arguments.hca if arguments.hca is not None else variables.value(variables.HCA, environment, host)
        wanted = expected.Expected(
            transport=arguments.transport,
            rails=tuple(arguments.rail),
            hca=chosen or None,
            mtu=arguments.mtu,
            root=not arguments.non_root,
            gid_index=variables.gid_index(environment, host),
        )
        report = checks.check(host, wanted)
        if not report.problems or time.monotonic() >= deadline:
            return report
        time.sleep(_PAUSE)


def _show(report: checks.Report, told: str, form: str) -> None:
    if form == "json":
        tree = {
            "ready": not report.problems,
            "problems": [each._asdict() for each in report.problems],
            "rails": [each._asdict() for each in report.rails],
        }
        print(json.dumps(tree, indent=2))
    if report.problems or form != "json":
        print(told, file=sys.stderr if report.problems else sys.stdout)


def _leave(host: hosts.Host, told: str) -> None:
    log = host.path(_TERMINATION_LOG)
    if log.is_file():
        try:
            log.write_text(f"{told}\n", encoding="utf-8")
        except OSError as error:
            print(f"{_TERMINATION_LOG}: {error.strerror}", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="railwright preflight", description="Checks that the rails of this container are ready for NCCL."
    )
    parser.add_argument("--transport", required=True, choices=list(expected.RULES), help="how the fabric carries RDMA")
    parser.add_argument(
        "--rail",
        action="append",
        default=[],
        type=_rail,
        metavar="NAME[,device=DEVICE][,interface=INTERFACE]",
        help="a rail, in order; without any, every device this container can use is checked",
    )
    parser.add_argument("--hca", help="which devices NCCL would take; default: NCCL_IB_HCA, as NCCL finds it")
    parser.add_argument("--mtu", type=int, default=0, help="least MTU of every rail's interface")
    parser.add_argument("--non-root", action="store_true", help="the ranks are not root: capabilities are not theirs")
    parser.add_argument("--wait", type=float, default=0, metavar="SECONDS", help="look again for so long; default 0")
    parser.add_argument("--warn", action="store_true", help="say what is wrong, and exit 0")
    parser.add_argument("--root", default="/", help="a recorded file tree to look at instead of /")
    parser.add_argument("-o", "--output", choices=["text", "json"], default="text", help="form of the answer")
    return parser


def _rail(written: str) -> expected.Rail:
    try:
        return expected.rail(written)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


if __name__ == "__main__":
    sys.exit(main())
