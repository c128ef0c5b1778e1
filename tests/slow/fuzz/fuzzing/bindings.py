"""Reviews of Bindings: HTTP 400, or an answer that allows, with annotations that a Binding can carry."""

import base64
import json
from collections.abc import Iterator

import admitting
import jsonpatch
import msgspec

from fuzzing import catalogue
from railwright.fabric import node_views
from webhook import bindings, reviews, state

EXECUTIONS = 6_000
TOKENS = (
    *b"metadata annotations target kind name Node gpu-3 uid namespace prod CREATE binding request object v1".split(),
    *(b'"', b"{", b"}", b"[", b"]", b":", b",", b"null", b"\\ud800", b"\xff", b"railwright.io/placement"),
)
_CAPTURED = admitting.WIRE / "admission-bindings-admin.json"
_POLICY = admitting.fabric(top="nodeShapes:\n- {name: a, match: {gpu: a}, devices: {rail0: mlx5_7}}\n")


def seeds() -> Iterator[bytes]:
    """Yield the captured one."""
    yield _CAPTURED.read_bytes()


def _caches() -> state.State:
    known = state.State()
    node = {"metadata": {"name": "gpu-3", "labels": {"gpu": "a"}}}
    known.nodes.replace([msgspec.convert(node, node_views.Node)])
    metadata = json.loads(_CAPTURED.read_text())["request"]["object"]["metadata"]
    tree = admitting.admitted(admitting.pod(), _POLICY)
    tree["metadata"] |= {key: metadata[key] for key in ("name", "namespace", "uid") if key in metadata}
    known.pods.replace([admitting.view(tree)])
    return known


_KNOWN = _caches()


def check(data: bytes) -> None:
    """Only MalformedError leaves; a Binding is never refused, and its patch applies."""
    try:
        request = bindings.read(data)
    except reviews.MalformedError as error:
        assert str(error)
        return
    answered = json.loads(bindings.handle(request, _POLICY, _KNOWN).body)["response"]
    assert answered["allowed"] is True
    tree = catalogue.tree(data)
    if tree and "patch" in answered:
        bound = jsonpatch.apply_patch(tree["request"]["object"], json.loads(base64.b64decode(answered["patch"])))
        assert all(isinstance(value, str) for value in bound["metadata"]["annotations"].values())
