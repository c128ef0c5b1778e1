"""Equal pods are planned once, and pods that differ get different answers.

test_excerpts.py varies every field of a pod.
"""

import json

import admitting
import msgspec
import pytest
from admitting import fabric, gpus, pod

from railwright.fabric import node_views, views
from webhook import pods, response_cache, state

ONE = "[{name: rail0, resource: nvidia.com/mlx5_0, device: mlx5_0}]"
CAPABLE = "    security: {capabilities: [IPC_LOCK]}\n"
BY = fabric(
    "    mounts: {sharedMemory: 64Gi}\n    security: {capabilities: [IPC_LOCK]}\n"
    "    env: {NCCL_IB_SL: '1', RANK: '9'}\n    resolve: always\n"
)
KNOWN = admitting.build_facts(networks={("prod", "lan2"): "nvidia.com/mlx5_0", ("prod", "lan3"): None}, version=1)
RESOURCE, ENFORCE = "k8s.v1.cni.cncf.io/resourceName", "pod-security.kubernetes.io/enforce"
INDEX = "batch.kubernetes.io/job-completion-index"
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"


def build_object(view: type, name: str, *, status: dict | None = None, **metadata):
    return msgspec.convert({"metadata": {"name": name, "namespace": "prod", **metadata}, "status": status or {}}, view)


def new_node(resource: str) -> node_views.Node:
    status = {"allocatable": {resource: "1"}, "nodeInfo": {"kubeletVersion": "v1.35.0"}}
    return build_object(node_views.Node, "new", status=status)


def test_pods_of_a_gang_share_one_cached_response():
    cache = response_cache.ResponseCache()
    for rank in range(8):
        token = f"kube-api-access-{rank:05}"
        mounts = [{"name": token, "mountPath": TOKEN}]
        container = gpus(8, env=[{"name": "VC_TASK_INDEX", "value": str(rank)}], volumeMounts=mounts)
        volumes = [{"name": token, "projected": {}}]
        tree = pod(container, annotations={"volcano.sh/task-index": str(rank)}, volumes=volumes)
        tree["metadata"]["name"] = f"peer-{rank}"
        tree["metadata"]["labels"]["volcano.sh/task-index"] = str(rank)
        review = admitting.review(tree, namespace="prod", uid=f"request-{rank}")
        answer = pods.answer_review(review, BY, lambda _: KNOWN, cache)
        assert answer.outcome == "patched"
        assert json.loads(answer.body)["response"]["uid"] == f"request-{rank}"
    assert len(cache) == 1


@pytest.mark.parametrize("change", ["policy", "network", "offer", "namespace", "file keys"])
def test_a_cached_response_is_not_used_after_a_change_of_the_policy_or_the_cluster(change):
    caches = state.State()
    caches.networks.replace([])
    caches.nodes.replace([])
    caches.nodes.upsert(new_node("nvidia.com/mlx5_0" if change == "file keys" else "cpu"))
    cache, policy = response_cache.ResponseCache(), fabric(f"{CAPABLE}    resolve: auto\n", rails=ONE)
    tree = pod(gpus(8), annotations={"k8s.v1.cni.cncf.io/networks": "prod/theirs"})
    body = admitting.review(tree, namespace="prod")
    first = pods.answer_review(body, policy, caches.build_facts, cache)
    assert pods.answer_review(body, policy, caches.build_facts, cache) == first
    if change == "policy":
        policy = fabric("    env: {NCCL_IB_SL: '3'}\n", rails=ONE)
    elif change == "network":
        caches.networks.upsert(
            build_object(views.NetworkAttachmentDefinition, "theirs", annotations={RESOURCE: "a.b/pool"})
        )
    elif change == "offer":
        caches.nodes.upsert(build_object(node_views.Node, "n", status={"allocatable": {"nvidia.com/mlx5_0": "1"}}))
    elif change == "file keys":
        caches.set_file_keys(True)
    else:
        caches.namespaces.upsert(build_object(views.Namespace, "prod", labels={ENFORCE: "baseline"}))
    second = pods.answer_review(body, policy, caches.build_facts, cache)
    assert second == pods.answer_review(body, policy, caches.build_facts)
    assert json.loads(second.body) != json.loads(first.body)


def mount_secret(token_of_secret: str, token_of_memory: str) -> dict:
    volumes = [{"name": token_of_secret, "secret": {"secretName": "s"}}, {"name": token_of_memory, "emptyDir": {}}]
    keys = {"name": "kube-api-access-a", "mountPath": "/root/.ssh"}
    return pod(gpus(8, volumeMounts=[keys]), volumes=volumes)


def mount_job_secret(mounted: str) -> dict:
    names = ("kube-api-access-a-ssh", "kube-api-access-b-ssh")
    volumes = [{"name": name, "secret": {"secretName": "s"}} for name in names]
    tree = pod(gpus(8, volumeMounts=[{"name": mounted, "mountPath": TOKEN}]), volumes=volumes)
    tree["metadata"]["labels"]["volcano.sh/job-name"] = "kube-api-access-a"
    return tree


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            mount_secret("kube-api-access-a", "kube-api-access-b"),
            mount_secret("kube-api-access-b", "kube-api-access-a"),
        ),
        (mount_job_secret("kube-api-access-a-ssh"), mount_job_secret("kube-api-access-b-ssh")),
        (pod(annotations={INDEX: "0"}), pod(annotations={INDEX: "\U0001f600" * 65_430})),
    ],
    ids=["a Secret in a token's name", "a job's Secret in a token's name", "a number of 256 KiB"],
)
def test_similar_pods_that_are_planned_differently_share_no_cached_response(one, other):
    cache = response_cache.ResponseCache()
    without = [pods.answer_review(admitting.review(tree), BY, lambda _: KNOWN) for tree in (one, other)]
    assert [pods.answer_review(admitting.review(tree), BY, lambda _: KNOWN, cache) for tree in (one, other)] == without
    assert without[0].body != without[1].body
