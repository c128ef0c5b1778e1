"""Parses a policy in a process of its own: a long one takes seconds, in which this process answers reviews."""

import sys

import msgspec

from railwright.cluster import bounded_process, documents, policies
from railwright.fabric.policy import model

_MOST_MEMORY = 384 << 20  # bytes of address space; the worst text of a mebibyte takes 250 MiB
_WITH_ANYTHING = "surrogatepass"  # passes lone surrogates on to the parser, which rejects them
_JOB = bounded_process.Job("railwright.cluster.policy_process", "reads policies")


class ReaderError(Exception):
    """The policy was not parsed: the process failed or timed out. The policy may be valid or not."""


class _Result(msgspec.Struct):
    """The result of the process: a document and its digest, or errors."""

    document: model.PolicyDocument | None = None
    digest: str = ""
    errors: tuple[policies.PolicyError, ...] = ()


_decode = msgspec.msgpack.Decoder(_Result).decode


async def read(text: str, seconds: float) -> model.Policy | policies.Rejected:
    """Run `policies.read` in another process, which is killed after `seconds` or on cancellation.

    Raises ReaderError.
    """
    if len(text) > documents.MAX_BYTES:
        return policies.read(text)  # rejected because of its length
    try:
        result = _decode(await _JOB.run(text.encode("utf-8", _WITH_ANYTHING), seconds))
    except bounded_process.ExceededError:
        raise ReaderError(f"the policy was not read within {seconds:.1f} s") from None
    except (bounded_process.ProcessError, msgspec.MsgspecError) as error:
        raise ReaderError(str(error)) from None
    if result.document is not None:
        return model.Policy(result.document, result.digest)
    return policies.Rejected(result.errors)


def main() -> int:
    """Read a policy from standard input and write the result to standard output."""
    memory_limit = bounded_process.limit(_MOST_MEMORY)
    text = sys.stdin.buffer.read().decode("utf-8", _WITH_ANYTHING)
    try:
        output = _encode(policies.read(text))
    except MemoryError:
        output = _encode(_reject(f"needs more than {memory_limit >> 20} MiB of memory to parse; shorten it"))
    sys.stdout.buffer.write(output)
    return 0


def _encode(result: model.Policy | policies.Rejected) -> bytes:
    if isinstance(result, policies.Rejected):
        errors = [
            policies.PolicyError(_replace_surrogates(error.path), error.line, _replace_surrogates(error.message))
            for error in result.errors
        ]
        return msgspec.msgpack.encode(_Result(errors=tuple(errors)))
    try:
        return msgspec.msgpack.encode(_Result(result.document, result.digest))
    except UnicodeEncodeError:
        return _encode(_reject("contains a lone surrogate; remove it"))


def _reject(message: str) -> policies.Rejected:
    return policies.Rejected((policies.PolicyError("", None, message),))


def _replace_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


if __name__ == "__main__":
    sys.exit(main())
