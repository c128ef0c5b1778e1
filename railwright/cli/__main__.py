"""The command line: `railwright COMMAND`, also as `kubectl railwright COMMAND`.

Owns the assembly of the parser from the modules in `cli/commands` and the last resort for errors. A command
is a module with NAME, HELP, `configure(parser)` and `run(arguments) -> exit code`, or, where another program
reads the arguments, NAME, HELP and `forward(argv) -> exit code`.
"""

from railwright.cli import sigterm

sigterm.handle_as_pid_1()  # first: whatever is imported takes time, in which a signal would be lost

import argparse
import contextlib
import errno
import importlib
import os
import pkgutil
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType

from railwright.cli import commands, examples, output

_PIPE_CLOSED = 141  # the shells' code for SIGPIPE, as of any program whose reader (`| head`) has seen enough
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_COMPLETE = "__complete"  # what shells call, see cli.completion


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 fine, 1 findings, 2 usage, unreadable input, unwritable output."""
    given = sys.argv[1:] if argv is None else list(argv)
    _open_closed_streams()
    try:
        code = _run(given)
        sys.stdout.flush()
    except output.UnreadableError as error:
        print(f"railwright: {error}", file=sys.stderr)
        return output.UNUSABLE
    except BrokenPipeError:
        _discard_output()
        return _PIPE_CLOSED
    except SystemExit as leaving:
        if isinstance(leaving.__context__, BrokenPipeError):  # as rich ends a program whose reader has gone
            return _PIPE_CLOSED
        raise
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        _discard_output()
        print(f"railwright: the output cannot be written: {error.strerror}; free some space", file=sys.stderr)
        return output.UNUSABLE
    except KeyboardInterrupt:
        return 130  # the shells' code for SIGINT
    return code


def _open_closed_streams() -> None:
    """Let standard streams that the caller has closed (`>&-`) lead nowhere; Python has None in their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - for as long as the process


def _discard_output() -> None:
    """Let what is left in the buffer go nowhere: the interpreter flushes it once more when it ends."""
    with contextlib.suppress(OSError, ValueError):  # no file of the system's behind it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(given: Sequence[str]) -> int:
    if given[:1] == [_COMPLETE]:
        return complete(given[1:])
    known = discover(given[0] if given else "")
    if given and hasattr(known.get(given[0]), "forward"):
        return int(known[given[0]].forward(given[1:]))
    try:
        arguments = _parser(known).parse_args(given)
    except SystemExit as leaving:  # argparse, after --help or a usage message
        return leaving.code if isinstance(leaving.code, int) else output.UNUSABLE
    from railwright.cluster import errors  # noqa: PLC0415 - the preflight container starts through this module, and without it

    try:
        return int(known[arguments.command].run(arguments))
    except errors.ClusterError as error:  # the one place that prints them, for every command
        print(f"railwright: {output.visible(error.sentence)}", file=sys.stderr)
        return output.UNUSABLE


def discover(wanted: str = "") -> Mapping[str, ModuleType]:
    """Commands by name, in the order of names; only the wanted one where there is such a one."""
    found = sorted(found.name for found in pkgutil.iter_modules(commands.__path__))
    chosen = [wanted] if wanted in found else found  # the imports of the others are not waited for
    modules = [importlib.import_module(f"{commands.__name__}.{name}") for name in chosen]
    return {str(module.NAME): module for module in modules}


def complete(words: Sequence[str] | None = None) -> int:
    """Print what the last word may become: for shells, and as `kubectl_complete-railwright` for kubectl."""
    from railwright.cli.completion import candidates  # noqa: PLC0415 - commands start without it

    given = list(sys.argv[1:] if words is None else words) or [""]
    known = discover(given[0]) if len(given) > 1 else beginning(given[0])
    print("\n".join(candidates.lines(candidates.of(_parser(known), given))))
    return output.OK


def beginning(prefix: str) -> Mapping[str, ModuleType]:
    """The commands whose name begins so: a shell waits, and the others' imports take time."""
    names = sorted(found.name for found in pkgutil.iter_modules(commands.__path__))
    return {name: module for each in names if each.startswith(prefix) for name, module in discover(each).items()}


class _Version(argparse.Action):
    """Print the version and end. It is imported only then: `preflight` starts on the standard library alone."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from railwright.fabric import version  # noqa: PLC0415 - see above

        print(f"railwright {version.VERSION}")
        parser.exit()


def _parser(known: Mapping[str, ModuleType]) -> argparse.ArgumentParser:
    kubectl = os.path.basename(sys.argv[0]) == "kubectl-railwright"  # noqa: PTH119 - a name, not a path to use
    parser = argparse.ArgumentParser(
        prog="kubectl railwright" if kubectl else "railwright",
        description="Gives distributed training pods the right RDMA network, and gangs the right nodes.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    branches = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in known.items():
        epilog = f"example: {examples.EXAMPLES[name]}" if name in examples.EXAMPLES else None
        branch = branches.add_parser(name, help=module.HELP, description=module.HELP, epilog=epilog)
        if hasattr(module, "configure"):
            module.configure(branch)
            output.add_option(branch)
    return parser


if __name__ == "__main__":
    sys.exit(main())
