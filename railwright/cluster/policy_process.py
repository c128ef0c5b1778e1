"""Parses a policy in a process of its own: a long one takes seconds, in which this process answers reviews.

A thread would not help: it would hold the interpreter, and each response would wait for it several times.
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

_MOST_MEMORY = 384 << 20  # bytes of address space; the worst text of a mebibyte takes 250 MiB
_NICENESS = 10  # gives reviews priority on few cores
_WITH_ANYTHING = "surrogatepass"  # passes lone surrogates on to the parser, which rejects them


class ReaderError(Exception):
    """The policy was not parsed: the process failed or timed out. The policy may be valid or not."""


class _Result(msgspec.Struct):
    """The result of the process: a document and its digest, or errors."""

    document: model.FabricPolicy | None = None
    digest: str = ""
    errors: list[tuple[str, int | None, str]] = []


_decode = msgspec.msgpack.Decoder(_Result).decode
_COMMAND = (sys.executable, "-P", "-m", "railwright.cluster.policy_process")


async def read(text: str, seconds: float) -> model.Policy | policies.Rejected:
    """Run `policies.read` in another process, which is killed after `seconds` or on cancellation.

    Raises ReaderError.
    """
    if len(text) > documents.MAX_BYTES:
        return policies.read(text)  # rejected because of its length
    reading = _Reading()
    try:
        result = await asyncio.to_thread(reading.run, text.encode("utf-8", _WITH_ANYTHING), seconds)
    finally:
        reading.end()  # otherwise the exit of this process would wait for it
    if result.document is not None:
        return model.Policy(result.document, result.digest)
    return policies.Rejected(tuple(policies.PolicyError(*error) for error in result.errors))


class _Reading:
    """One process that parses one text."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False

    def run(self, text: bytes, seconds: float) -> _Result:
        """Block until the result is there; `end` may be called meanwhile from another thread. Raises ReaderError."""
        try:
            with subprocess.Popen(  # noqa: S603 - runs this module
                _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            ) as self._process:
                try:
                    if self._ended:
                        self._process.kill()
                    output, stderr = self._process.communicate(text, timeout=seconds)
                except BaseException:
                    self._process.kill()
                    raise
            if self._process.returncode != 0:
                last = stderr.decode(errors="replace").strip().rpartition("\n")[2]
                raise ReaderError(f"the process that reads policies ended with {self._process.returncode}: {last}")
            return _decode(output)
        except subprocess.TimeoutExpired:
            raise ReaderError(f"the policy was not read within {seconds:.1f} s") from None
        except (OSError, msgspec.MsgspecError) as error:
            raise ReaderError(f"no process to read the policy with: {error}") from None

    def end(self) -> None:
        """Kill the process if it is running."""
        self._ended = True
        if self._process is not None:
            self._process.kill()


def main() -> int:
    """Read a policy from standard input and write the result to standard output."""
    import resource  # noqa: PLC0415 - missing on Windows, where only commands run

    os.nice(_NICENESS)
    allowed = resource.getrlimit(resource.RLIMIT_AS)[1]
    memory_limit = _MOST_MEMORY if allowed == resource.RLIM_INFINITY else min(_MOST_MEMORY, allowed)
    resource.setrlimit(resource.RLIMIT_AS, (memory_limit, memory_limit))
    with contextlib.suppress(OSError):  # Linux: if memory runs out, kill this process instead of the server
        pathlib.Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
    text = sys.stdin.buffer.read().decode("utf-8", _WITH_ANYTHING)
    try:
        output = _encode_result(policies.read(text))
    except MemoryError:
        output = _encode_error(f"needs more than {memory_limit >> 20} MiB of memory to parse; shorten it")
    sys.stdout.buffer.write(output)
    return 0


def _encode_result(result: model.Policy | policies.Rejected) -> bytes:
    if isinstance(result, policies.Rejected):
        return _encode_errors(
            [
                (_replace_surrogates(error.path), error.line, _replace_surrogates(error.message))
                for error in result.errors
            ]
        )
    try:
        return msgspec.msgpack.encode(_Result(result.document, result.digest))
    except UnicodeEncodeError:
        return _encode_error("contains a lone surrogate; remove it")


def _encode_error(message: str) -> bytes:
    return _encode_errors([("", None, message)])


def _encode_errors(errors: list[tuple[str, int | None, str]]) -> bytes:
    return msgspec.msgpack.encode(_Result(errors=errors))


def _replace_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


if __name__ == "__main__":
    sys.exit(main())
