"""`railwright preflight`: finds the rails of this container, checks them, and writes files for its libraries.

The result is one line and an exit code, and the line is also in the termination log, where `kubectl describe pod` shows
it. With --warn all files are written and the exit code is 0 after any error, because a missing file would stop the
ranks' container.
"""

import argparse
import ipaddress
import itertools
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from railwright.preflight import checks, expected, files, resolution
from railwright.preflight import host as hosts

OK, FINDINGS = 0, 1  # docs/interface.md 6; argparse returns 2 for wrong usage
_TERMINATION_LOG = "/dev/termination-log"  # Kubernetes' terminationMessagePath
_PAUSES = (0.5, 1, 2)  # seconds between two checks; reading the GID tables of a node takes a tenth of a second


def main(argv: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Find and check the rails, write the files, and print the result.

    Return the exit code: 0 if the rails are ready, or with --warn; 1 for problems, 2 for wrong usage.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    try:
        return _run_preflight(_build_parser().parse_args(words, expected.Expectations(environment=environment)))
    except SystemExit as exit_error:  # argparse, after --help or a usage message
        code = exit_error.code if isinstance(exit_error.code, int) else 2
        return _write_empty_files(words) if code and "--warn" in words else code
    except Exception as error:  # whatever it is, the ranks are not to wait for files for ever
        if "--warn" not in words:
            raise
        print(f"railwright preflight warning: {type(error).__name__}: {error}", file=sys.stderr)
        return _write_empty_files(words)


def _run_preflight(expectations: expected.Expectations) -> int:
    host = hosts.Host(expectations.root)
    view, rails, problems = _wait_until_found(host, expectations)
    variables = files.derive_variables(view, rails)
    texts, unfit = files.format_files(expectations, variables)
    problems += unfit
    if expectations.write:
        texts[files.RAILS_JSON] = files.format_json(files.build_rails_json(view, rails, variables, problems))
        files.write_files(expectations.write, texts)
        # `railwright verify` reads it from the log, also after the pod has ended
        print(texts[files.RAILS_JSON], end="")
    is_failed = any(problem.stated for problem in problems)
    line = f"railwright preflight {checks.format_result(view, rails, problems)}"
    print(line, file=sys.stderr if is_failed else sys.stdout)
    _write_termination_log(host, line)
    return FINDINGS if is_failed and not expectations.warn else OK


def _wait_until_found(
    host: hosts.Host, expectations: expected.Expectations
) -> tuple[resolution.ContainerView, tuple[resolution.ResolvedRail, ...], list[checks.Problem]]:
    """Find and check the rails until all stated values are there and no address has two GIDs, or the time is over.

    GIDs and active ports appear shortly after address and link. The GID of an ended pod disappears after its interface.
    """
    deadline, pauses = time.monotonic() + expectations.wait, iter(_PAUSES)
    while True:
        view = resolution.read_container(host, expectations)
        rails = resolution.resolve_rails(view)
        problems = list(checks.find_problems(view, rails))
        is_settled = not any(problem.stated for problem in problems) and all(len(rail.equal_gids) < 2 for rail in rails)
        if is_settled or time.monotonic() >= deadline:
            return view, rails, problems
        time.sleep(next(pauses, _PAUSES[-1]))


def _write_empty_files(words: Sequence[str]) -> int:
    """Write files without variables, so that the ranks start as without railwright."""
    folder = next((after for word, after in itertools.pairwise(words) if word == "--write"), "")
    if folder:
        texts = dict.fromkeys((files.RAILS_ENV, files.NCCL_CONF, files.UCX_CONF), "")
        texts[files.RAILS_JSON] = files.format_json({"version": files.VERSION, "ready": False})
        try:
            files.write_files(folder, texts)
        except OSError as error:  # libraries that read files by their own names start without them
            print(f"{folder}: {error.strerror}", file=sys.stderr)
    return OK


def _write_termination_log(host: hosts.Host, message: str) -> None:
    log = host.resolve_path(_TERMINATION_LOG)
    if os.path.isfile(log):  # noqa: PTH113
        try:
            with open(log, "w", encoding="utf-8") as file:  # noqa: PTH123
                file.write(f"{message}\n")
        except OSError as error:
            print(f"{_TERMINATION_LOG}: {error.strerror}", file=sys.stderr)


# --- options ----------------------------------------------------------------------------------------------


_RAIL_FORM = "NAME[,device=DEVICE][,resource=RESOURCE][,interface=INTERFACE]"


def _build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="railwright preflight",
        description="Finds the rails of this container, checks them, and writes what NCCL and other libraries need.",
    )

    def add_option(name: str, description: str, **more: Any) -> None:
        parser.add_argument(name, help=description, **more)

    add_option("--transport", "transport of the fabric", required=True, choices=list(expected.RULES))
    rails = "a rail of the fabric, in its order; default: every RDMA device that the container can use"
    add_option("--rail", rails, action="append", default=[], dest="rails", type=_parse_rail, metavar=_RAIL_FORM)
    add_option("--gid-index", "GID index of every rail (the policy's nccl.gidIndex)", type=int, metavar="N")
    add_option(
        "--address-range", "addresses of the rails (nccl.addressRange)", type=_parse_address_range, metavar="PREFIX"
    )
    add_option("--mtu", "smallest allowed MTU of every rail's interface", type=int)
    add_option("--isolated", "different rails cannot reach each other (NCCL_CROSS_NIC=0)", action="store_true")
    add_option("--several-containers", "several containers request devices of the rails", action="store_true")
    variable = "another variable of the ranks, for nccl.conf and ucx.conf"
    add_option(
        "--set", variable, action="append", default=[], dest="settings", type=_parse_variable, metavar="NAME=VALUE"
    )
    vendor = "a variable that a vendor's plugin or script sets, or NAME* (nccl.vendorVariables)"
    add_option("--vendor-variable", vendor, action="append", default=[], dest="vendor_variables", metavar="NAME")
    add_option("--write", "folder for rails.env, nccl.conf, ucx.conf and rails.json", metavar="DIR")
    add_option("--non-root", "the ranks do not run as root, so that IPC_LOCK has no effect", action="store_true")
    add_option(
        "--wait", "repeat failed checks for up to this number of seconds; default 0", type=float, metavar="SECONDS"
    )
    add_option("--warn", "print problems as warnings and exit 0", action="store_true")
    add_option("--root", "folder with a copy of a container's /dev, /proc and /sys; default /")
    return parser


def _parse_rail(text: str) -> expected.Rail:
    """Parse _RAIL_FORM. The interface is last and may contain commas, which names of interfaces may have."""
    head, mark, interface = text.partition(",interface=")
    name, *parts = head.split(",")
    options = {key: value for key, _, value in (part.partition("=") for part in parts)}
    if not name or (mark and not interface) or options.keys() - {"device", "resource"} or not all(options.values()):
        raise argparse.ArgumentTypeError(f"{text!r} is not {_RAIL_FORM}")
    return expected.Rail(name, options.get("device", ""), interface, options.get("resource", ""))


def _parse_address_range(text: str) -> expected.AddressRange:
    return ipaddress.ip_network(text, strict=False)  # NCCL ignores the bits behind the prefix too


def _parse_variable(text: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not (name and mark):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


if __name__ == "__main__":
    sys.exit(main())
