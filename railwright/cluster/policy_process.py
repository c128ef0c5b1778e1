"""The reading of a policy in a process of its own: a long one takes seconds, in which this process answers reviews.

A thread would not do: whoever computes in Python holds the interpreter, and each answer of the event loop waits for it
several times. Owns the process, its bounds, and what goes through its pipes. What a policy may be is `policies`'.
"""

import asyncio
import contextlib
import os
import pathlib
import subprocess
import sys

import msgspec

from railwright.cluster import documents, policies
from railwright.fabric.policy import model

_MOST_MEMORY = 384 << 20  # bytes of address space; a mebibyte of the worst text takes 250 MiB
_NICENESS = 10  # reviews go first where cores are few
_WITH_ANYTHING = "surrogatepass"  # a text may hold what is no character, and is refused for it, or not, by its reader


class ReaderError(Exception):
    """The policy was not read: there was no process for it, or not in time. It may be good or bad."""


class _Result(msgspec.Struct):
    """What goes back: a document and its digest, or errors."""

    document: model.FabricPolicy | None = None
    digest: str = ""
    errors: list[tuple[str, int | None, str]] = []


_decode = msgspec.msgpack.Decoder(_Result).decode
_COMMAND = (sys.executable, "-P", "-m", "railwright.cluster.policy_process")


async def read(text: str, seconds: float) -> model.Policy | policies.Rejected:
    """`policies.read` in another process, which is ended after so many seconds, or when this is cancelled.

    Raises ReaderError.
    """
    if len(text) > documents.MAX_BYTES:
        return policies.read(text)  # refused for its length alone
    reading = _Reading()
    try:
        result = await asyncio.to_thread(reading.run, text.encode("utf-8", _WITH_ANYTHING), seconds)
    finally:
        reading.end()  # else the end of this process would wait for it
    if result.document is not None:
        return model.Policy(result.document, result.digest)
    return policies.Rejected(tuple(policies.PolicyError(*error) for error in result.errors))


class _Reading:
    """One process that reads one text."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False

    def run(self, text: bytes, seconds: float) -> _Result:
        """Blocks until it has read; `end` may be called meanwhile, in another thread. Raises ReaderError."""
        try:
            with subprocess.Popen(  # noqa: S603 - this module
                _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as self._process:
                try:
                    if self._ended:
                        self._process.kill()
                    written, said = self._process.communicate(text, timeout=seconds)
                except BaseException:
                    self._process.kill()
                    raise
            if self._process.returncode != 0:
                last = said.decode(errors="replace").strip().rpartition("\n")[2]
                raise ReaderError(f"the process that reads policies ended with {self._process.returncode}: {last}")
            return _decode(written)
        except subprocess.TimeoutExpired:
            raise ReaderError(f"the policy was not read within {seconds:.1f} s") from None
        except (OSError, msgspec.MsgspecError) as error:
            raise ReaderError(f"no process to read the policy with: {error}") from None

    def end(self) -> None:
        """Kill the process, if it still runs."""
        self._ended = True
        if self._process is not None:
            self._process.kill()


def main() -> int:
    """Read a policy from standard input and write what it is."""
    import resource  # noqa: PLC0415 - not there on Windows, where commands are used and no server

    os.nice(_NICENESS)
    allowed = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = _MOST_MEMORY if allowed == resource.RLIM_INFINITY else min(_MOST_MEMORY, allowed)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    with contextlib.suppress(OSError):  # Linux: where memory is short this process ends, not the server
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
    text = sys.stdin.buffer.read().decode("utf-8", _WITH_ANYTHING)
    try:
        written = _encoded(policies.read(text))
    except MemoryError:
        written = _refusal(f"takes more than {most >> 20} MiB of memory to read; shorten it")
    sys.stdout.buffer.write(written)
    return 0


def _encoded(result: model.Policy | policies.Rejected) -> bytes:
    if isinstance(result, policies.Rejected):
        return _refused([(_shown(each.path), each.line, _shown(each.message)) for each in result.errors])
    try:
        return msgspec.msgpack.encode(_Result(result.document, result.digest))
    except UnicodeEncodeError:
        return _refusal("holds half of a surrogate pair, which is no character; remove it")


def _refusal(message: str) -> bytes:
    return _refused([("", None, message)])


def _refused(errors: list[tuple[str, int | None, str]]) -> bytes:
    return msgspec.msgpack.encode(_Result(errors=errors))


def _shown(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


if __name__ == "__main__":
    sys.exit(main())
