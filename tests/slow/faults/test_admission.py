"""Faults in reviews: the same one twice, at two replicas."""

import base64
import copy
import itertools
import json
from collections.abc import Callable

import admitting
import jsonpatch
import pytest_asyncio

POLICY = f"""
apiVersion: railwright.io/v1alpha1
defaultFabric: f
fabrics:
  f:
    transport: roce
    rails: {admitting.RAILS}
    security: {{capabilities: [IPC_LOCK]}}
    mounts: {{sharedMemory: 1Gi}}
"""


def files(folder) -> tuple[str, ...]:
    kind = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}
    networks = [kind | {"metadata": {"name": f"lan{lan}", "namespace": "prod"}} for lan in (2, 3)]
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "prod"}}
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "snapshot.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [space, *networks]}))
    return "--plain-http", "--policy", str(folder / "policy.yaml"), "--snapshot", str(folder / "snapshot.json")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def replica(started, tmp_path_factory):
    """`await replica(number)`: one of several replicas, as `await call(review) -> response`."""
    running: dict[int, Callable] = {}
    folder = tmp_path_factory.mktemp("webhook")

    async def numbered(number: int = 0):
        if number not in running:
            running[number] = await begin()
        return running[number]

    async def begin():
        server = await started("webhook", *files(folder))

        async def call(tree: dict, **request) -> dict:
            body = admitting.review(tree, namespace="prod", **request)
            caller = await server.open()
            answer = await caller.ask(body, path="/mutate/pods?timeout=5s")
            await caller.close()
            assert answer.status == 200, answer.body
            response = json.loads(answer.body)["response"]
            assert response["allowed"], response
            return response

        return call

    return numbered


def apply_patch(tree: dict, response: dict) -> dict:
    """By a strict implementation of RFC 6902, on the document as it was sent."""
    if "patch" not in response:
        return tree
    return jsonpatch.apply_patch(copy.deepcopy(tree), json.loads(base64.b64decode(response["patch"])))


def pods() -> list[dict]:
    """Return pods of real controllers, opted in, and made ones."""
    recorded = sorted((admitting.ROOT / "tests" / "data" / "pods").rglob("*.json"))
    trees = [json.loads(path.read_text()) for path in recorded]
    pods = [
        document for tree in trees for document in (tree if isinstance(tree, list) else [tree]) if "spec" in document
    ]
    for pod in pods:
        pod["metadata"].setdefault("labels", {})["railwright.io/fabric"] = "f"
        pod["metadata"]["namespace"] = "prod"
    sizes = [admitting.gpus(8, "c0"), admitting.gpus(1, "c1"), admitting.cpu("c2")]
    return [*pods, *(admitting.pod(*several) for several in itertools.permutations(sizes, 2))]


async def test_33_equal_reviews_get_equal_patches(fault, replica):
    one, other = await replica(0), await replica(1)
    trees = pods()
    for tree in trees:
        first = await one(tree)
        assert "patch" in first
        again, elsewhere = await one(tree, uid="another"), await other(tree)
        assert first["patch"] == again["patch"] == elsewhere["patch"], "two replicas must agree to the byte"
        after = apply_patch(tree, first)
        assert "patch" not in await one(after)
        assert "patch" not in await other(after)
    fault.saw(
        f"{len(trees)} pods, each 3 times by 2 replicas: equal patches; {2 * len(trees)} second reviews: no patch"
    )
