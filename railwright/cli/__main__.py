"""The command line: `railwright COMMAND`, also as `kubectl railwright COMMAND`.

Builds the parser from the modules in `cli/commands` and handles errors of all commands. A command is a module with
NAME, HELP, `configure(parser)` and `run(arguments) -> exit code`; or NAME, HELP and `forward(argv) -> exit code` if it
parses its own options.
"""

from railwright.cli import sigterm

sigterm.handle_as_pid_1()  # first, because a signal during the imports would be lost

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

_PIPE_CLOSED = 141  # exit code of shells for SIGPIPE, as with `| head`
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_COMPLETE = "__complete"  # called by the completion scripts, see cli.completion


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 success, 1 findings, 2 wrong usage or input."""
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
        if isinstance(leaving.__context__, BrokenPipeError):  # rich exits like this when the pipe is closed
            return _PIPE_CLOSED
        raise
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        _discard_output()
        print(f"railwright: cannot write the output: {error.strerror}; free disk space", file=sys.stderr)
        return output.UNUSABLE
    except KeyboardInterrupt:
        return 130  # exit code of shells for SIGINT
    return code


def _open_closed_streams() -> None:
    """Let standard streams that the caller has closed (`>&-`) lead nowhere; Python has None in their place."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - for as long as the process


def _discard_output() -> None:
    """Redirect stdout to /dev/null: the interpreter flushes its buffer again at exit."""
    with contextlib.suppress(OSError, ValueError):  # stdout has no file descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(given: Sequence[str]) -> int:
    if given[:1] == [_COMPLETE]:
        return complete(given[1:])
    command_modules = discover(given[0] if given else "")
    if given and hasattr(command_modules.get(given[0]), "forward"):
        return int(command_modules[given[0]].forward(given[1:]))
    try:
        arguments = _parser(command_modules).parse_args(given)
    except SystemExit as leaving:  # from argparse, after --help or a usage message
        return leaving.code if isinstance(leaving.code, int) else output.UNUSABLE
    from railwright.cluster import errors  # noqa: PLC0415 - the preflight container lacks this package

    try:
        return int(command_modules[arguments.command].run(arguments))
    except errors.ClusterError as error:  # printed here for all commands
        print(f"railwright: {output.visible(error.sentence)}", file=sys.stderr)
        return output.UNUSABLE


def discover(name: str = "") -> Mapping[str, ModuleType]:
    """Return the commands by name, sorted; only the command `name` if it exists, to import no other."""
    all_names = sorted(module.name for module in pkgutil.iter_modules(commands.__path__))
    module_names = [name] if name in all_names else all_names
    modules = [importlib.import_module(f"{commands.__name__}.{module_name}") for module_name in module_names]
    return {str(module.NAME): module for module in modules}


def complete(words: Sequence[str] | None = None) -> int:
    """Print the completions of the last word, for shells and, as `kubectl_complete-railwright`, for kubectl."""
    from railwright.cli.completion import candidates  # noqa: PLC0415 - commands start without it

    given = list(sys.argv[1:] if words is None else words) or [""]
    command_modules = discover(given[0]) if len(given) > 1 else beginning(given[0])
    print("\n".join(candidates.lines(candidates.of(_parser(command_modules), given))))
    return output.OK


def beginning(prefix: str) -> Mapping[str, ModuleType]:
    """Return the commands whose names begin with `prefix`. Importing all would delay completion."""
    names = sorted(module.name for module in pkgutil.iter_modules(commands.__path__))
    matches = [name for name in names if name.startswith(prefix)]
    return {name: module for match in matches for name, module in discover(match).items()}


class _Version(argparse.Action):
    """Prints the version and exits. Imports it only then, because `preflight` starts without third-party packages."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from railwright.fabric import version  # noqa: PLC0415 - see above

        print(f"railwright {version.VERSION}")
        parser.exit()


def _parser(command_modules: Mapping[str, ModuleType]) -> argparse.ArgumentParser:
    kubectl = os.path.basename(sys.argv[0]) == "kubectl-railwright"  # noqa: PTH119 - only its name matters
    parser = argparse.ArgumentParser(
        prog="kubectl railwright" if kubectl else "railwright",
        description="Gives distributed training pods the right RDMA network, and gangs the right nodes.",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show program's version number and exit")
    branches = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in command_modules.items():
        epilog = f"example: {examples.EXAMPLES[name]}" if name in examples.EXAMPLES else None
        branch = branches.add_parser(name, help=module.HELP, description=module.HELP, epilog=epilog)
        if hasattr(module, "configure"):
            module.configure(branch)
            output.add_option(branch)
    return parser


if __name__ == "__main__":
    sys.exit(main())
