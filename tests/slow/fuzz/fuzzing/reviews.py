"""Fuzzes reviews of pods: HTTP 400, or an answer whose patch applies, and which has no patch the second time."""

import base64
import json
from collections.abc import Callable, Iterator

import admitting
import jsonpatch

from fuzzing import catalogue
from railwright.fabric.injection import facts
from webhook import pods, response_cache, reviews

EXECUTIONS = 5_000
TOKENS = (
    *b"railwright.io/fabric railwright.io/rails railwright.io/skip railwright.io/containers".split(),
    *b"railwright.io/delivery railwright.io/injection railwright.io/nccl.conf".split(),
    *b"k8s.v1.cni.cncf.io/networks".split(),
    *b"f default none rail0 rail0-rail1 env file networks preflight railwright-preflight IPC_LOCK".split(),
    *b"NCCL_IB_HCA NCCL_DEBUG nvidia.com/gpu nvidia.com/mlx5_0 cpu memory 1 0 1e9 -1 500m".split(),
    *b"metadata spec containers initContainers volumes volumeMounts resources requests limits securityContext".split(),
    *b"annotations labels envFrom env valueFrom capabilities add drop privileged hostNetwork command /dev/shm".split(),
    *(b'"', b"{", b"}", b"[", b"]", b":", b",", b"null", b"\\ud800", b"\\u0000", b"\xff"),
)
_POLICY = admitting.fabric(
    "    security: {capabilities: [IPC_LOCK]}\n    mounts: {sharedMemory: 1Gi}\n"
    "    env: {NCCL_DEBUG: INFO}\n    resolve: always\n    preflight: {mtu: 4200}\n",
    top="nodeShapes:\n- {name: a, match: {gpu: a}, devices: {rail0: mlx5_7}}\n",
)


def _build_versioned_facts(namespace: str) -> facts.ClusterFacts:
    return admitting.build_facts(namespace, version=1)


def seeds() -> Iterator[bytes]:
    """Yield captured reviews, and reviews of pods of many kinds."""
    yield from (path.read_bytes() for path in sorted(admitting.WIRE.glob("admission-pods-*.json")))
    rich = admitting.gpus(
        8,
        env=[{"name": "NCCL_DEBUG", "value": "X"}, {"name": "A", "valueFrom": {"fieldRef": {}}}],
        envFrom=[{"secretRef": {"name": "s"}}],
        securityContext={"capabilities": {"drop": ["ALL"]}, "runAsUser": 0},
        volumeMounts=[{"name": "v", "mountPath": "/dev/shm"}],
    )
    for tree in (
        admitting.pod(),
        admitting.pod(admitting.cpu("a"), admitting.gpus(1, "b"), annotations={"railwright.io/containers": "b"}),
        admitting.pod(rich, volumes=[{"name": "v", "emptyDir": {}}], initContainers=[admitting.cpu("i")]),
        admitting.pod(
            annotations={"k8s.v1.cni.cncf.io/networks": "x@y", "railwright.io/rails": "1"}, hostNetwork=False
        ),
    ):
        yield admitting.review(tree)


def check(data: bytes) -> None:
    check_answers(_handle, data)


def check_answers(handle: Callable[[bytes], reviews.Answer], data: bytes) -> None:
    """Assert that only MalformedError is raised, patches apply, and a second admission changes nothing."""
    try:
        answered = _read(handle(data))
    except reviews.MalformedError as error:
        assert str(error)
        assert len(str(error)) < 2000
        return
    tree = catalogue.parse_strictly(data)
    if tree is None:
        return
    request = tree["request"]
    assert answered["uid"] == request["uid"]
    assert answered["allowed"] or answered["status"]["message"]
    assert all(len(warning) <= reviews.MAX_WARNING for warning in answered.get("warnings", ()))
    if "patch" not in answered:
        return
    operations = json.loads(base64.b64decode(answered["patch"]))
    assert {operation["op"] for operation in operations} <= {"add", "replace"}
    patched = jsonpatch.apply_patch(request["object"], operations)
    again = _read(handle(json.dumps({**tree, "request": {**request, "object": patched}}).encode()))
    assert again["allowed"], again
    assert "patch" not in again, base64.b64decode(again["patch"])


def _read(answer: reviews.Answer) -> dict:
    return json.loads(answer.body)["response"]


def _handle(data: bytes) -> reviews.Answer:
    """Return the answer, after a check that a cache of answers does not change it."""
    answer = pods.answer_review(data, _POLICY, admitting.build_facts)
    remembered = response_cache.ResponseCache()
    for _ in range(2):
        assert pods.answer_review(data, _POLICY, _build_versioned_facts, remembered) == answer
    return answer
