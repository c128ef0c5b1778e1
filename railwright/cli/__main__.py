"""Runs `railwright COMMAND`, which kubectl also calls as `kubectl railwright COMMAND`.

Gives every command the same exit codes and messages for closed streams, a full disk, interrupts and unreadable input.
`dispatch` finds the command.
"""

import os
import signal
import sys
from types import FrameType


def exit_on_sigterm_as_pid_1() -> None:
    """Exit on SIGTERM if this process is PID 1, until a server sets a handler that drains its connections.

    The kernel ignores a signal for which PID 1 of a container has no handler. A pod deleted while its server still
    imports libraries would run until kubelet kills it after the grace period. Other processes end by default.
    """
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit_on_signal)


def _exit_on_signal(signal_number: int, _frame: FrameType | None) -> None:
    os._exit(128 + signal_number)  # exit code as in shells; nothing needs cleanup yet


def end_on_sigint() -> None:
    """Let SIGINT end the process during the imports, without a traceback and with the exit code 130 in shells."""
    is_program = __name__ == "__main__" or "railwright" in os.path.basename(sys.argv[0])  # noqa: PTH119 - only its name
    if is_program and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


exit_on_sigterm_as_pid_1()  # first, because a signal during the imports would be lost
end_on_sigint()  # otherwise the imports end with a traceback

import errno
import io
from collections.abc import Sequence
from typing import TextIO

from railwright.cli import output, programs

_INTERRUPTED = 130  # exit code of shells for SIGINT
_PIPE_CLOSED = 141  # exit code of shells for SIGPIPE, as with `| head`
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
_COMPLETING = "_ARGCOMPLETE"  # variable that the scripts of `railwright completion` set


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 success, 1 findings, 2 wrong usage or input."""
    given = sys.argv[1:] if argv is None else list(argv)
    _open_closed_streams()
    _replace_unencodable_characters(sys.stdout)
    try:
        code = _run_command(given)
        sys.stdout.flush()
    except output.UnreadableError as error:
        print(f"railwright: {error}", file=sys.stderr)
        return output.UNUSABLE
    except BrokenPipeError:
        output.discard_stream(sys.stdout)  # the interpreter flushes its buffer again at exit
        return _PIPE_CLOSED
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        output.discard_stream(sys.stdout)  # the interpreter flushes its buffer again at exit
        print(f"railwright: cannot write the output: {error.strerror}; free disk space", file=sys.stderr)
        return output.UNUSABLE
    except KeyboardInterrupt:
        if argv is None:  # the process ends: its cleanup may print errors when it ends a credential plugin
            output.discard_stream(sys.stderr)
            try:
                sys.stdout.flush()
            except OSError:
                output.discard_stream(sys.stdout)  # the interpreter flushes its buffer again at exit
        return _INTERRUPTED
    return code


def _open_closed_streams() -> None:
    """Redirect standard streams that the caller has closed (`>&-`) to the null device; Python sets them to None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 - for as long as the process


def _replace_unencodable_characters(stream: TextIO) -> None:
    """Let stdout print a replacement for characters that its encoding lacks, as in a locale that is not UTF-8.

    Python does so for stderr.
    """
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors="replace")


def _run_command(words: Sequence[str]) -> int:
    """Import and run the command that the first word names."""
    first, rest = (words[0], words[1:]) if words else ("", ())
    if first in programs.PROGRAMS:
        return programs.call_command(programs.import_main(first), rest)
    from railwright.cli import dispatch

    if _COMPLETING in os.environ:
        from railwright.cli import completion

        completion.print_completions(dispatch.build_parser())
    return dispatch.run_command(words)


if __name__ == "__main__":
    sys.exit(main())
