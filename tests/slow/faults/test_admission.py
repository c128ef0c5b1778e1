"""Faults in reviews: the same review twice, at two replicas."""

import itertools
import json

import admitting
import jsonpatch
import yaml

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


def write_files(folder) -> tuple[str, ...]:
    """Write the policy and a snapshot of the cluster; return the options with their paths."""
    kind = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition"}
    networks = [kind | {"metadata": {"name": f"lan{lan}", "namespace": "prod"}} for lan in (2, 3)]
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "prod"}}
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "snapshot.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [space, *networks]}))
    return "--plain-http", "--policy", str(folder / "policy.yaml"), "--snapshot", str(folder / "snapshot.json")


def list_pods() -> list[dict]:
    """Return the pods of real controllers, opted in, and generated ones."""
    recorded = [*yaml.safe_load((admitting.ROOT / "tests" / "data" / "pods.yaml").read_text()).values()]
    for pod in recorded:
        pod["metadata"].setdefault("labels", {})["railwright.io/fabric"] = "f"
        pod["metadata"]["namespace"] = "prod"
    sizes = [admitting.gpus(8, "c0"), admitting.gpus(1, "c1"), admitting.cpu("c2")]
    return [*recorded, *(admitting.pod(*several) for several in itertools.permutations(sizes, 2))]


async def review(caller, tree: dict, **request) -> list[dict]:
    """Return the JSON Patch operations of a review."""
    body = admitting.review(tree, namespace="prod", **request)
    answer = await caller.ask(body, path="/mutate/pods?timeout=5s")
    response = json.loads(answer.body)["response"]
    assert response["allowed"], response
    return admitting.decode_operations(response)


async def test_33_equal_reviews_get_equal_patches(tmp_path, started):
    options = write_files(tmp_path)
    one, other = [await (await started("webhook", *options)).open() for _ in range(2)]
    trees = list_pods()
    for tree in trees:
        operations = await review(one, tree)
        assert operations
        assert await review(one, tree, uid="another") == await review(other, tree) == operations, "two replicas agree"
        after = jsonpatch.apply_patch(tree, operations)
        assert await review(one, after) == await review(other, after) == []
    for caller in (one, other):
        await caller.close()
