"""Fuzzes policy documents: refused with the place of every error, or a value that can be written and read again."""

import pathlib
from collections.abc import Iterator

import msgspec

from railwright.cluster import policies
from railwright.fabric.injection import rank_settings
from railwright.fabric.policy import model

EXECUTIONS = 3_000  # a document takes the schema's validator several milliseconds
TOKENS = (
    *b"fabrics rails transport roce tcp efa nccl preflight nodeShapes env".split(),
    *(b"!!int x", b"!!bool x", b"!!float x", b"!!null x", b"2026-99-99", b".inf", b"0b2", b"1:70", b"? [a]"),
    *b"null ~ true 1e3 0x10 010 <<: *a &a !!".split(),
    *b"placement claims namespaces acceleratorClass pairBy devices match".split(),
    *b"oversubscription preset security".split(),
    *(b": ", b"\n", b"\n  ", b"\n    - ", b"[", b"]", b"{", b"}"),
    *(b"'", b'"', b"|\n", b"---\n", b"#", b"\t", b"\xc2\x85"),
)
_ROOT = pathlib.Path(__file__).parents[4]
_SMALL = b"""apiVersion: railwright.io/v1alpha1
fabrics:
  a: &a
    transport: roce
    rails: [{name: r0, network: p/n, resource: x.y/z, device: d0}]
    nccl: {gidIndex: 3, addressRange: 10.0.0.0/8}
  b:
    <<: *a
    transport: infiniband
nodeShapes:
- {name: s, match: {k: v}, devices: {r0: d1}, numa: [{gpus: [0], rails: [r0]}]}
"""


def seeds() -> Iterator[bytes]:
    """Yield a small policy, and those of tests and examples."""
    yield _SMALL
    yield b"apiVersion: !!int x\nkind: !!bool x\nfabrics: {a: {transport: .inf, rails: !!seq x}}\nb: 2026-99-99\n"
    yield b'{"apiVersion":"railwright.io/v1alpha1","fabrics":{"a":{"transport":"tcp"}}}'
    files = [*_ROOT.glob("tests/data/policies/*.yaml"), *_ROOT.glob("manifests/examples/*/policy.yaml")]
    yield from (path.read_bytes() for path in sorted(files))


def check(data: bytes) -> None:
    """Assert that reading never raises, errors have a place and a sentence, and a policy can be read from its JSON."""
    text = data.decode("utf-8", "replace")
    result = policies.read(text)
    if isinstance(result, policies.RejectedPolicy):
        assert result.errors
        lines = max(1, len(text.splitlines()) + 1)
        for error in result.errors:
            assert error.message
            assert error.line is None or 1 <= error.line <= lines, error
        return
    written = msgspec.json.encode(result.document)
    assert msgspec.json.decode(written, type=model.PolicyDocument) == result.document
    again = policies.read(written.decode())
    assert not isinstance(again, policies.RejectedPolicy), again
    assert again.document == result.document
    get_settings = rank_settings.compile_settings(result.document)
    for name in result.document.fabrics:
        get_settings(name, None, False, True)
