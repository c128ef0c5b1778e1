"""`railwright check`: the installation, top to bottom, a row each, with what to do about each that does not hold.

Owns the arguments, the waiting and the exit codes. What is looked at is `cli/checking`'s.
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
HELP = "look at an installation: certificates, webhook configurations, policy, networks, nodes; a hint for each failure"
_PATIENCE = 300.0  # seconds of a bare --wait
_EVERY = 2.0  # seconds between two looks
_CALL_SECONDS = 15.0  # for one answer of the API server: somebody sits and waits
_PIPED_WIDTH, _PICTURE_WIDTH = 200, 140  # columns where there is no terminal to ask, and of a picture


def configure(parser: argparse.ArgumentParser) -> None:
    """Options of this command."""
    parser.add_argument("--kubeconfig", metavar="FILE", default="", help="the API server (default: as kubectl has it)")
    parser.add_argument("--context", metavar="NAME", default=None, help="a context of the kubeconfig")
    parser.add_argument("-n", "--namespace", default=names.NAMESPACE, help="of the installation (default: %(default)s)")
    parser.add_argument("--namespace-for-probe", metavar="NAME", default="", help="where a pod is created as a dry run "
                        "(default: the first namespace that may use the fabric)")  # fmt: skip
    parser.add_argument("--pre", action="store_true", help="before installing: is the cluster fit for it?")
    parser.add_argument("--strict", action="store_true", help="exit 1 for warnings too")
    parser.add_argument("--wait", metavar="SECONDS", type=_seconds, nargs="?", const=_PATIENCE, default=0.0,
                        help=f"look again until nothing fails, at most so long (default {_PATIENCE:g})")  # fmt: skip
    parser.add_argument("--svg", metavar="FILE", type=pathlib.Path, help="also write the picture as SVG")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table", help="form of the answer")


def run(arguments: argparse.Namespace) -> int:
    """0 all holds, 1 something fails (--strict: or warns), 2 wrong usage, or a cluster that could not all be read."""
    return asyncio.run(_check(arguments))


async def _check(arguments: argparse.Namespace) -> int:
    from railwright.cli.checking import catalogue, model, reading  # noqa: PLC0415 - see above
    from railwright.cluster import client as clients  # noqa: PLC0415

    client = await clients.connect(
        kubeconfig.chosen(arguments.kubeconfig), context=arguments.context, call_seconds=_CALL_SECONDS
    )
    try:

        async def look() -> "tuple[model.Result, ...]":
            seen = await reading.look(
                client,
                server=client.host,
                namespace=arguments.namespace,
                probing=arguments.namespace_for_probe,
                before=arguments.pre,
            )
            return model.judged(catalogue.GROUPS, seen, before=arguments.pre)

        results = await _patiently(look, arguments)
    finally:
        await client.close()
    code = _code(results, strict=arguments.strict)
    _answer(arguments, results, client, good=code == output.OK)
    if code == output.UNUSABLE and not model.unreachable(results):
        print("railwright: not all of it could be looked at, so nobody knows whether all is well", file=sys.stderr)
    return code


def _code(results: "Sequence[model.Result]", *, strict: bool) -> int:
    """Return 1 where something fails; 2 where that is not known, because the cluster was not or not wholly readable."""
    from railwright.cli.checking import model  # noqa: PLC0415 - see above

    if model.unreachable(results):
        return output.UNUSABLE
    if model.failed(results, strict=strict):
        return output.FINDINGS
    return output.UNUSABLE if model.unread(results) else output.OK


async def _patiently(
    look: "Callable[[], Awaitable[tuple[model.Result, ...]]]", arguments: argparse.Namespace
) -> "tuple[model.Result, ...]":
    """Look until nothing fails or time is up; meanwhile a terminal shows the rows, and others one line a change."""
    from rich import console, live  # noqa: PLC0415 - see above

    from railwright.cli.checking import model, picture  # noqa: PLC0415 - see above

    end = time.monotonic() + arguments.wait
    results = await look()
    if not arguments.wait or not model.failed(results, strict=arguments.strict):
        return results
    screen = console.Console(stderr=True, highlight=False)
    told: tuple[str, ...] = ()
    with live.Live(console=screen, transient=True, auto_refresh=False) as shown:
        while model.failed(results, strict=arguments.strict) and time.monotonic() < end:
            failing = tuple(each.check for each in results if each.state is model.State.FAIL)
            if screen.is_terminal:
                shown.update(picture.render(results), refresh=True)
            elif failing != told:
                print(f"railwright: waiting for {', '.join(failing) or 'warnings'}", file=sys.stderr, flush=True)
            told = failing
            await asyncio.sleep(min(_EVERY, max(0.0, end - time.monotonic())))
            results = await look()
    return results


def _answer(
    arguments: argparse.Namespace, results: "Sequence[model.Result]", client: "clients.Client", *, good: bool
) -> None:
    from rich.console import Console  # noqa: PLC0415 - see above

    from railwright.cli.checking import picture  # noqa: PLC0415 - see above

    if arguments.output == "json":
        output.print_json(
            picture.document(
                results, server=client.host, namespace=arguments.namespace, version=version.VERSION, good=good
            )
        )
    if arguments.output == "json" and not arguments.svg:
        return
    file = io.StringIO() if arguments.output == "json" else None  # the picture alone is wanted
    console = Console(record=bool(arguments.svg), highlight=False, file=file)
    if arguments.svg or not console.is_terminal:
        console.width = _PICTURE_WIDTH if arguments.svg else _PIPED_WIDTH
    console.print(picture.render(results))
    if arguments.svg:
        arguments.svg.write_text(output.offline(console.export_svg(title="railwright check")), encoding="utf-8")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= 86400:
        raise argparse.ArgumentTypeError(f"{text}: give seconds from 0 to 86400")
    return seconds
