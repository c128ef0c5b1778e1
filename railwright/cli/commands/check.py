"""`railwright check`: verifies an installation and prints a fix for each failed check.

Parses options, repeats the checks for --wait and sets the exit code. The checks are in `cli/checking`.
"""

import argparse
import asyncio
import io
import pathlib
import sys
import time
import typing
from collections.abc import Awaitable, Callable, Sequence

from railwright.cli import kubeconfig, output
from railwright.fabric import names, version

if typing.TYPE_CHECKING:  # slow to import, and `railwright --help` needs none of them
    from railwright.cli.checking import model
    from railwright.cluster import client as clients

NAME = "check"
HELP = "verify an installation: certificates, webhook configurations, policy, networks, nodes; each failure has a fix"
_DEFAULT_WAIT = 300.0  # seconds, for --wait without a value
_INTERVAL = 2.0  # seconds between two runs
_CALL_SECONDS = 15.0  # per API call; a user is waiting
_PIPED_WIDTH, _PICTURE_WIDTH = 200, 140  # columns without a terminal, and of the SVG


def configure(parser: argparse.ArgumentParser) -> None:
    """Define the options of this command."""
    parser.add_argument(
        "--kubeconfig", metavar="FILE", default="", help="kubeconfig of the cluster (default: as for kubectl)"
    )
    parser.add_argument("--context", metavar="NAME", default=None, help="context of the kubeconfig")
    parser.add_argument(
        "-n", "--namespace", default=names.NAMESPACE, help="namespace of the installation (default: %(default)s)"
    )
    parser.add_argument("--namespace-for-probe", metavar="NAME", default="", help="namespace of the dry-run pod "
                        "(default: the first namespace that may use the fabric)")  # fmt: skip
    parser.add_argument("--pre", action="store_true", help="before installing: check the prerequisites")
    parser.add_argument("--strict", action="store_true", help="exit with 1 for warnings too")
    parser.add_argument("--allow-unread", action="store_true",
                        help="do not exit with 2 for checks skipped for missing permission to read")  # fmt: skip
    parser.add_argument("--wait", metavar="SECONDS", type=_parse_seconds, nargs="?", const=_DEFAULT_WAIT, default=0.0,
                        help="repeat until no check fails, for at most this long (default "
                             f"{_DEFAULT_WAIT:g})")  # fmt: skip
    parser.add_argument("--svg", metavar="FILE", type=pathlib.Path, help="also write the output as SVG")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table", help="output format")


def run(arguments: argparse.Namespace) -> int:
    """Return 0 if all checks passed, 1 if one failed (--strict: or warned), 2 if the cluster could not be read.

    Without --allow-unread, 2 also if the caller may not read what some checks need.
    """
    return asyncio.run(_check(arguments))


async def _check(arguments: argparse.Namespace) -> int:
    from railwright.cli.checking import catalogue, model, reader  # noqa: PLC0415 - see above
    from railwright.cluster import client as clients  # noqa: PLC0415

    client = await clients.connect(
        kubeconfig.choose(arguments.kubeconfig), context=arguments.context, call_seconds=_CALL_SECONDS
    )
    try:

        async def run_checks() -> "tuple[model.Result, ...]":
            snapshot = await reader.read_cluster(
                client,
                server=client.host,
                namespace=arguments.namespace,
                probing=arguments.namespace_for_probe,
                before=arguments.pre,
            )
            return model.run_checks(catalogue.GROUPS, snapshot, before=arguments.pre)

        results = await _run_until_passed(run_checks, arguments)
    finally:
        await client.close()
    code = _get_exit_code(results, strict=arguments.strict, allow_unread=arguments.allow_unread)
    _print_results(arguments, results, client, good=code == output.OK)
    if code == output.UNUSABLE and not model.is_unreachable(results):
        print(
            "railwright: some checks could not run, so the result is incomplete; see the skipped rows for the reasons",
            file=sys.stderr,
        )
    return code


def _get_exit_code(results: "Sequence[model.Result]", *, strict: bool, allow_unread: bool = False) -> int:
    """Return 1 if a check failed, 2 if the cluster was unreadable or, unless allowed, partly readable, else 0."""
    from railwright.cli.checking import model  # noqa: PLC0415 - see above

    if model.is_unreachable(results):
        return output.UNUSABLE
    if model.has_failures(results, strict=strict):
        return output.FINDINGS
    return output.UNUSABLE if model.has_unread(results) and not allow_unread else output.OK


async def _run_until_passed(
    run_checks: "Callable[[], Awaitable[tuple[model.Result, ...]]]", arguments: argparse.Namespace
) -> "tuple[model.Result, ...]":
    """Repeat the checks until none fails or time is up.

    Meanwhile a terminal shows the rows; other outputs get a line when the failing rows change.
    """
    from rich import console, live  # noqa: PLC0415 - see above

    from railwright.cli.checking import model, rendering  # noqa: PLC0415 - see above

    end = time.monotonic() + arguments.wait
    results = await run_checks()
    if not arguments.wait or not model.has_failures(results, strict=arguments.strict):
        return results
    screen = console.Console(stderr=True, highlight=False)
    reported: tuple[str, ...] = ()
    with live.Live(console=screen, transient=True, auto_refresh=False) as shown:
        while model.has_failures(results, strict=arguments.strict) and time.monotonic() < end:
            failing = tuple(result.check for result in results if result.state is model.State.FAIL)
            if screen.is_terminal:
                shown.update(rendering.render(results), refresh=True)
            elif failing != reported:
                print(f"railwright: waiting for {', '.join(failing) or 'warnings'}", file=sys.stderr, flush=True)
            reported = failing
            await asyncio.sleep(min(_INTERVAL, max(0.0, end - time.monotonic())))
            results = await run_checks()
    return results


def _print_results(
    arguments: argparse.Namespace, results: "Sequence[model.Result]", client: "clients.Client", *, good: bool
) -> None:
    from rich.console import Console  # noqa: PLC0415 - see above

    from railwright.cli.checking import rendering  # noqa: PLC0415 - see above

    if arguments.output == "json":
        output.print_json(
            rendering.build_document(
                results, server=client.host, namespace=arguments.namespace, version=version.VERSION, good=good
            )
        )
    if arguments.output == "json" and not arguments.svg:
        return
    file = io.StringIO() if arguments.output == "json" else None  # only the SVG is needed
    console = Console(record=bool(arguments.svg), highlight=False, file=file)
    if arguments.svg or not console.is_terminal:
        console.width = _PICTURE_WIDTH if arguments.svg else _PIPED_WIDTH
    console.print(rendering.render(results))
    if arguments.svg:
        arguments.svg.write_text(output.offline(console.export_svg(title="railwright check")), encoding="utf-8")


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86400:
        raise argparse.ArgumentTypeError(f"{text}: give seconds from 0 to 86400")
    return seconds
