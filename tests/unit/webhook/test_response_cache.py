"""Equal pods are planned once, and cached responses equal those without a cache."""

import copy
import json

import admitting
import msgspec
import pytest
from admitting import cpu, fabric, gpus, pod
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric import node_views, views
from railwright.fabric.injection import facts
from webhook import pods, response_cache, state

ONE = "[{name: rail0, resource: nvidia.com/mlx5_0, device: mlx5_0}]"
CAPABLE = "    security: {capabilities: [IPC_LOCK]}\n"
BY = fabric(
    "    mounts: {sharedMemory: 64Gi}\n    security: {capabilities: [IPC_LOCK]}\n"
    "    env: {NCCL_IB_SL: '1', RANK: '9'}\n    forceEnv: [NODE_RANK]\n    preflight: {enabled: true}\n"
)
KNOWN = admitting.known(networks={("prod", "lan2"): "nvidia.com/mlx5_0", ("prod", "lan3"): None})
RESOURCE, ENFORCE = "k8s.v1.cni.cncf.io/resourceName", "pod-security.kubernetes.io/enforce"
INDEX = "batch.kubernetes.io/job-completion-index"
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"

OWNER = {"kind": "Job", "name": "j", "uid": "u", "controller": True}
# Each changes a pod: in a field in which pods of a gang differ, or in one in which they do not.
STEPS = {
    "name": lambda p: p["metadata"].update(name="peer"),
    "index": lambda p: p["metadata"]["labels"].update({"volcano.sh/task-index": "7"}),
    "role": lambda p: p["metadata"]["labels"].update({"training.kubeflow.org/job-role": "launcher"}),
    "replica": lambda p: p["metadata"]["labels"].update({"training.kubeflow.org/replica-index": "3"}),
    "fabric": lambda p: p["metadata"]["labels"].update({"railwright.io/fabric": "none"}),
    "rails": lambda p: p["metadata"].setdefault("annotations", {}).update({"railwright.io/rails": "1"}),
    "networks": lambda p: p["metadata"].setdefault("annotations", {}).update({"k8s.v1.cni.cncf.io/networks": "x"}),
    "forged": lambda p: p["metadata"].setdefault("annotations", {}).update({"railwright.io/injection": "{}"}),
    "rank": lambda p: env(p).append({"name": "RANK", "value": "7"}),
    "rank as ours": lambda p: env(p).append({"name": "RANK", "value": "9"}),
    "forced rank": lambda p: env(p).append({"name": "NODE_RANK", "value": "7"}),
    "index variable": lambda p: env(p).append({"name": "VC_TASK_INDEX", "value": str(len(env(p)))}),
    "same as ours": lambda p: env(p).append({"name": "NCCL_IB_SL", "value": "1"}),
    "their own": lambda p: env(p).append({"name": "NCCL_IB_SL", "value": "2"}),
    "from a field": lambda p: env(p).append({"name": "NCCL_IB_HCA", "valueFrom": {"fieldRef": {}}}),
    "warns": lambda p: p["spec"]["containers"][0].update(envFrom=[{"secretRef": {"name": "s"}}]),
    "no env": lambda p: p["spec"]["containers"][0].pop("env", None),
    "token": lambda p: token(p, "kube-api-access-abcde", TOKEN),
    "other token": lambda p: token(p, "kube-api-access-zzzzz", TOKEN),
    "false token": lambda p: token(p, "kube-api-access-shm00", "/dev/shm"),
    "sidecar": lambda p: p["spec"]["containers"].insert(0, cpu(f"sidecar{len(p['spec']['containers'])}")),
    "command": lambda p: p["spec"]["containers"][0].update(command=["mpirun", "-x", "NCCL_IB_RETRY_CNT=10"]),
    "host network": lambda p: p["spec"].update(hostNetwork=True),
    "node": lambda p: p["spec"].update(nodeSelector={"a": "b"}),
    "fewer": lambda p: p["spec"]["containers"][-1].update(gpus(4, "few")),
    "null volumes": lambda p: p["spec"].update(volumes=None),
    "owner": lambda p: p["metadata"].update(ownerReferences=[OWNER]),
    "copy": lambda p: p["metadata"].update(ownerReferences=[OWNER | {"kind": "ReplicaSet"}]),
    "task": lambda p: p["metadata"]["labels"].update({"volcano.sh/job-name": "j", "volcano.sh/task-spec": "mpimaster"}),
    "group": lambda p: p["metadata"]["annotations"].update({"scheduling.k8s.io/group-name": "g"}),
    "in-tree group": lambda p: p["spec"].update(schedulingGroup={"podGroupName": "g"}),
    "no accelerators": lambda p: [container.pop("resources", None) for container in p["spec"]["containers"]],
    "mpi host": lambda p: env(p).append({"name": "MPI_HOST", "value": "x"}),
    "submits": lambda p: p["spec"]["containers"][-1].update(command=["ray", "job", "submit"]),
    "node name": lambda p: p["spec"].update(nodeName="n"),
    "windows": lambda p: p["spec"].update(os={"name": "windows"}),
    "preflight": lambda p: initialize(p, name="railwright-preflight", command=["railwright", "preflight", "--wait"]),
    "false preflight": lambda p: initialize(p, name="railwright-preflight", command=["other"]),
    "accelerated sidecar": lambda p: initialize(p, **gpus(8, "init", restartPolicy="Always")),
    "accelerated init": lambda p: initialize(p, **gpus(8, "init")),
    "image": lambda p: p["spec"]["containers"][0].update(image="gib/train"),
    "plugin": lambda p: env(p).append({"name": "NCCL_NET", "value": "gib"}),
    "block": lambda p: p["spec"]["containers"][0].update(volumeDevices=[{"name": "b", "devicePath": "/dev/shm"}]),
    "devices": lambda p: mount(p, "devs", "/dev/infiniband", persistentVolumeClaim={}),
    "own memory": lambda p: mount(p, "railwright-shm", "/dev/shm", emptyDir={}),
    "own file": lambda p: mount(p, "railwright-nccl-conf", "/etc/nccl.conf", downwardAPI={}),
    "their file": lambda p: mount(p, "railwright-nccl-conf", "/etc/nccl.conf", configMap={}),
    "their memory": lambda p: mount(p, "m", "/dev/shm", emptyDir={"medium": "Memory", "sizeLimit": "1Mi"}),
    "host devices": lambda p: mount(p, "dev", "/dev", hostPath={"path": "/dev/"}),
    "default network": lambda p: p["metadata"]["annotations"].update({"v1.multus-cni.io/default-network": "prod/lan2"}),
    "default container": lambda p: p["metadata"]["annotations"].update(
        {"kubectl.kubernetes.io/default-container": "second"}
    ),
    "interfaces": lambda p: p["metadata"]["annotations"].update({"networking.gke.io/interfaces": "[]"}),
    "job": lambda p: p["metadata"]["labels"].update({"batch.kubernetes.io/job-name": "j"}),
    "topology": lambda p: p["metadata"]["annotations"].update(
        {"railwright.io/topology": '{"fields":["/spec/scheduling"]}'}
    ),
    "their config": lambda p: mount(p, "c", "/etc/conf", configMap={"name": "conf"}),
    "tolerates": lambda p: p["spec"].update(tolerations=[{"key": "gpu", "operator": "Exists"}]),
    "interface": lambda p: env(p).append({"name": "NCCL_SOCKET_IFNAME", "value": "eth7"}),
}
POLICIES = {
    "nvlink": fabric(
        "    nvlink: {}\n    placement: {domains: [nvidia.com/gpu.clique]}\n"
        "    sourceScript: {path: /opt/env.sh}\n    sidecars: [{name: s, image: i}]\n",
    ),
    "pod": fabric(
        "    pod: {runtimeClassName: kata, tolerations: [{key: gpu, operator: Exists}]}\n"
        "    mounts: {hostPaths: [{path: /opt}], configMaps: [{name: conf, mountPath: /etc/conf}]}\n"
    ),
    "all": BY,
    "file": fabric("    nccl: {delivery: both}\n    mounts: {devInfiniband: true}\n", top=admitting.SHAPES),
    "claims": admitting.policy(
        "apiVersion: railwright.io/v1alpha1\nkind: FabricPolicy\nfabrics:\n  f:\n    transport: roce\n"
        "    gpusPerNode: 8\n    claims: {deviceClass: mrdma.google.com, accelerators: {deviceClass: gpu.nvidia.com}, "
        "pairBy: none}\n    rails: [{name: rail0, device: mlx5_0}, {name: rail1, device: mlx5_1}]\n"
        "    railsPerPod: proportional\n"
    ),
}


def env(tree: dict) -> list:
    return tree["spec"]["containers"][0].setdefault("env", [])


def initialize(tree: dict, **container) -> None:
    tree["spec"].setdefault("initContainers", []).append(container)


def token(tree: dict, name: str, path: str) -> None:
    mount(tree, name, path, projected={})


def mount(tree: dict, name: str, path: str, **source) -> None:
    tree["spec"]["volumes"] = [*(tree["spec"].get("volumes") or []), {"name": name, **source}]
    container = tree["spec"]["containers"][0]
    container["volumeMounts"] = [*container.get("volumeMounts", []), {"name": name, "mountPath": path}]


def build_object(view: type, name: str, *, status: dict | None = None, **metadata):
    return msgspec.convert({"metadata": {"name": name, "namespace": "prod", **metadata}, "status": status or {}}, view)


def set_version(known: facts.ClusterFacts, version: int) -> facts.ClusterFacts:
    return msgspec.structs.replace(known, version=version)


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", ["", *STEPS])
def test_the_cache_does_not_change_an_answer(first):
    """All pods that are one step from each other, in one cache: an excerpt that lacks a field would mix them up."""
    known = set_version(KNOWN, 1)
    caches = {name: response_cache.ResponseCache() for name in POLICIES}
    for second in ["", *STEPS][["", *STEPS].index(first) :]:
        body = admitting.review(after(first, second), namespace="prod")
        for name, by in POLICIES.items():
            fresh = pods.handle(body, by, lambda _: known)
            assert pods.handle(body, by, lambda _: known, caches[name]) == fresh, (second, name)


@given(st.lists(st.lists(st.sampled_from(sorted(STEPS)), max_size=4), min_size=2, max_size=6))
def test_cached_responses_equal_fresh_ones_for_any_sequence_of_pods(walks):
    cache, known = response_cache.ResponseCache(), set_version(KNOWN, 1)
    for walk in walks:
        body = admitting.review(after(*walk), namespace="prod")
        assert pods.handle(body, BY, lambda _: known, cache) == pods.handle(body, BY, lambda _: known)


def after(*steps: str) -> dict:
    tree = pod(gpus(8), gpus(8, "second") if "fewer" in steps else cpu("second"), annotations={})
    for step in steps:
        if step:
            STEPS[step](tree)
    return tree


def test_peers_of_a_gang_are_planned_once():
    cache = response_cache.ResponseCache()
    known = set_version(KNOWN, 1)
    for rank in range(8):
        tree = pod(gpus(8), annotations={"volcano.sh/task-index": str(rank)})
        tree["metadata"]["name"] = f"peer-{rank}"
        tree["metadata"]["labels"]["volcano.sh/task-index"] = str(rank)
        env(tree).append({"name": "VC_TASK_INDEX", "value": str(rank)})
        token(tree, f"kube-api-access-{rank:05}", TOKEN)
        answer = pods.handle(admitting.review(tree, namespace="prod"), BY, lambda _: known, cache)
        assert answer.outcome == "patched"
    assert len(cache.by_key) == 1


@pytest.mark.parametrize("change", ["policy", "network", "offer", "namespace"])
def test_no_response_outlives_its_inputs(change):
    caches = state.State()
    caches.networks.replace([])
    caches.nodes.replace([])
    cache, policy = response_cache.ResponseCache(), fabric(CAPABLE, rails=ONE)
    tree = pod(gpus(8), annotations={"k8s.v1.cni.cncf.io/networks": "prod/theirs"})
    body = admitting.review(tree, namespace="prod")
    first = pods.handle(body, policy, caches.build_facts, cache)
    assert pods.handle(body, policy, caches.build_facts, cache) == first
    if change == "policy":
        policy = fabric("    env: {NCCL_IB_SL: '3'}\n", rails=ONE)
    elif change == "network":
        caches.networks.upsert(
            build_object(views.NetworkAttachmentDefinition, "theirs", annotations={RESOURCE: "a.b/pool"})
        )
    elif change == "offer":
        caches.nodes.upsert(build_object(node_views.Node, "n", status={"allocatable": {"nvidia.com/mlx5_0": "1"}}))
    else:
        caches.namespaces.upsert(build_object(views.Namespace, "prod", labels={ENFORCE: "baseline"}))
    second = pods.handle(body, policy, caches.build_facts, cache)
    assert second == pods.handle(body, policy, caches.build_facts)
    assert json.loads(second.body) != json.loads(first.body)


def test_very_long_responses_are_not_cached():
    cache, known = response_cache.ResponseCache(), set_version(KNOWN, 1)
    tree = pod(gpus(8, args=["NCCL_" + "x" * 20000]), annotations={})
    for given_ in (tree, copy.deepcopy(tree)):
        pods.handle(admitting.review(given_, namespace="prod"), BY, lambda _: known, cache)
    assert not cache.by_key


def with_secret(token_of_secret: str, token_of_memory: str) -> dict:
    volumes = [{"name": token_of_secret, "secret": {"secretName": "s"}}, {"name": token_of_memory, "emptyDir": {}}]
    keys = {"name": "kube-api-access-a", "mountPath": "/root/.ssh"}
    return pod(gpus(8, volumeMounts=[keys]), volumes=volumes)


def of_job(mounted: str) -> dict:
    names = ("kube-api-access-a-ssh", "kube-api-access-b-ssh")
    volumes = [{"name": name, "secret": {"secretName": "s"}} for name in names]
    tree = pod(gpus(8, volumeMounts=[{"name": mounted, "mountPath": TOKEN}]), volumes=volumes)
    tree["metadata"]["labels"]["volcano.sh/job-name"] = "kube-api-access-a"
    return tree


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (with_secret("kube-api-access-a", "kube-api-access-b"), with_secret("kube-api-access-b", "kube-api-access-a")),
        (of_job("kube-api-access-a-ssh"), of_job("kube-api-access-b-ssh")),
        (pod(annotations={INDEX: "0"}), pod(annotations={INDEX: "\U0001f600" * 65_430})),
    ],
    ids=["a Secret in a token's name", "a job's Secret in a token's name", "a number of 256 KiB"],
)
def test_similar_pods_have_different_keys(one, other):
    cache, known = response_cache.ResponseCache(), set_version(KNOWN, 1)
    without = [pods.handle(admitting.review(tree), BY, lambda _: known) for tree in (one, other)]
    assert [pods.handle(admitting.review(tree), BY, lambda _: known, cache) for tree in (one, other)] == without
    assert without[0].body != without[1].body
