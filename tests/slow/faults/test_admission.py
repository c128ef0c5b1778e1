"""Faults in reviews: duplicate values, changes by other webhooks between two calls, and nearly empty objects."""

import base64
import copy
import itertools
import json
from collections import Counter
from collections.abc import Callable

import admitting
import jsonpatch
import peers
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


def twice(tree: dict) -> list[str]:
    """Return the entries that are there more than once."""
    duplicates = []
    for container in tree["spec"]["containers"]:
        for key, what in (("env", "name"), ("volumeMounts", "mountPath")):
            duplicates += [
                name for name, n in Counter(entry[what] for entry in container.get(key, [])).items() if n > 1
            ]
    return duplicates + [
        name for name, n in Counter(volume["name"] for volume in tree["spec"]["volumes"]).items() if n > 1
    ]


def environment(tree: dict) -> dict[str, set[str]]:
    return {
        container["name"]: {env["name"] for env in container.get("env", [])} for container in tree["spec"]["containers"]
    }


async def test_34_rounds_with_another_webhook_converge(fault, replica):
    call = await replica()
    tree = admitting.pod(admitting.cpu("side"), admitting.gpus(8, "train"), admitting.cpu("last"))
    first = apply_patch(tree, await call(tree))
    rounds = 0
    for actions in [*itertools.product(peers.ACTIONS, repeat=2)]:
        after = first
        for action in actions:
            moved = peers.ACTIONS[action](after)
            after = apply_patch(moved, await call(moved))
            rounds += 1
        assert "patch" not in await call(after), actions
        assert twice(after) == [], actions
        if not {"without_last", "user_defined_injection"} & set(actions):
            ours = {name for name in environment(first)["train"] if name.startswith("NCCL_")}
            assert ours
            assert ours <= environment(after)["train"], actions
            assert not any(name.startswith("NCCL_") for name in environment(after)["side"]), actions
    fault.saw(
        f"{rounds} reviews after {len(peers.ACTIONS)} kinds of changes, two in a row: all converged, nothing twice"
    )


ABSENT = object()


def without(tree: dict, path: tuple, value: object) -> None:
    for step in path[:-1]:
        tree = tree[step]
    if value is ABSENT:
        tree.pop(path[-1], None)
    else:
        tree[path[-1]] = copy.deepcopy(value)


GPU = {"requests": None, "limits": {"nvidia.com/gpu": "8"}}
VARIED = {
    ("metadata", "annotations"): (ABSENT, {}, None, {"railwright.io/containers": "c"}),
    ("spec", "volumes"): (ABSENT, [], None),
    ("spec", "containers", 0, "env"): (ABSENT, [], None),
    ("spec", "containers", 0, "resources"): (ABSENT, {}, None, {"limits": {}}, {"limits": None, "requests": None}, GPU),
    ("spec", "containers", 0, "securityContext"): (ABSENT, {}, None, {"capabilities": None}),
}


async def test_35_the_patch_of_a_pod_without_lists_applies(fault, replica):
    call = await replica()
    count = 0
    for values in itertools.product(*VARIED.values()):
        tree = admitting.pod(admitting.cpu())
        for path, value in zip(VARIED, values, strict=True):
            without(tree, path, value)
        without(tree, ("spec", "containers", 0, "volumeMounts"), values[1])
        if not values[0] or values[0] is ABSENT:
            without(tree, ("spec", "containers", 0, "resources"), GPU)  # a rank by its accelerator, not by its author
        after = apply_patch(tree, await call(tree))
        assert admitting.limits(after)["nvidia.com/mlx5_0"] == "1"
        assert "NCCL_IB_HCA" in admitting.env(after)
        assert after["spec"]["containers"][0]["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
        assert after["spec"]["volumes"]
        assert "patch" not in await call(after)
        count += 1
    fault.saw(f"{count} pods with lists absent, empty or null: {count} patches applied by a strict JSON Patch library")
