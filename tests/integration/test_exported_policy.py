"""`railwright policy export`: the API server alone gives pods what the webhook would give them."""

import copy
import difflib
import json
import uuid

import admitting
import pytest
import pytest_asyncio
from plane import api, manifests, waiting

from railwright.fabric.injection import facts
from railwright.fabric.policy_export import admission_policies

FABRIC, INJECTION = "railwright.io/fabric", "railwright.io/injection"
LABEL = "railwright.test/exported"
KIND = "admissionregistration.k8s.io/v1/"
RESOURCES = ("nvidia.com/mlx5_0", "nvidia.com/mlx5_1")
POLICY = admitting.policy(
    manifests.policy(
        {
            "ib": manifests.fabric(
                2,
                mounts={"sharedMemory": "64Gi"},
                security={"capabilities": ["IPC_LOCK", "SYS_NICE"]},
                nccl={"debug": "WARN"},
                env={"NCCL_NET_GDR_READ": "1", "QUOTED": 'it\'s \\ "so"'},
                forceEnv=["NCCL_NET_GDR_READ"],
                annotations={"example.com/pool": "rails"},
            ),
            "efa": {
                "transport": "efa",
                "rails": [{"name": f"rail{k}", "resource": "vpc.amazonaws.com/efa"} for k in range(4)],
                "devicesPerRail": 2,
                "nccl": {"forbidTcpFallback": True},
            },
            "host": {
                "transport": "roce",
                "rails": [{"name": "rail0", "device": "mlx5_0"}],
                "mounts": {"devInfiniband": True},
                "security": {"privileged": True},
                "nccl": {"trafficClass": 106, "addressRange": "192.168.0.0/16"},
            },
            "gib": {
                "transport": "roce",
                "rails": [{"name": "rail0", "device": "mlx5_0"}],
                "primaryInterface": "ens7",
                "resources": {"hugepages-2Mi": "512Mi", "example.com/ib": "1"},
                "mounts": {
                    "hostPaths": [{"path": "/home/gib", "mountPath": "/usr/local/gib"}],
                    "configMaps": [{"name": "topo", "key": "topo.xml", "mountPath": "/etc/topo.xml"}],
                },
                "pod": {
                    "hostNetwork": True,
                    "runtimeClassName": "nvidia",
                    "tolerations": [{"key": "gpu"}, {"key": "team", "operator": "Equal", "value": "a"}],
                },
            },
            "File-Both": manifests.fabric(2, nccl={"delivery": "both"}),
        },
        defaultFabric="ib",
        roles={"volcanoTasks": {"launcher": "never"}},
    )
)


def gpus(name: str = "c", count: int = 8, more: dict | None = None, **fields) -> dict:
    amounts = {"nvidia.com/gpu": str(count), **(more or {})}
    return {"name": name, "image": "i", "resources": {"limits": amounts, "requests": amounts}, **fields}


def variables(**values: str) -> list[dict]:
    return [{"name": name, "value": value} for name, value in values.items()]


FROM_FIELD = {"name": "NCCL_NET_GDR_READ", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
MEMORY = {"name": "mine", "emptyDir": {"medium": "Memory"}}
CASES: dict[str, dict] = {
    "one container": {"containers": [gpus()]},
    "several": {"containers": [{"name": "proxy", "image": "i"}, gpus("a"), gpus("b")]},
    "init containers": {"containers": [gpus()], "initContainers": [gpus("before"), {"name": "sidecar", "image": "i"}]},
    "own variables": {"containers": [gpus(env=variables(A="1", NCCL_DEBUG="INFO", NCCL_IB_HCA="mlx5_9", Z="2"))]},
    "a variable twice": {"containers": [gpus(env=[*variables(A="1", NCCL_DEBUG="INFO"), *variables(A="2")])]},
    "forced variables": {"containers": [gpus(env=variables(A="1", NCCL_NET_GDR_READ="0", Z="2"))]},
    "forced over a field": {"containers": [gpus(env=[FROM_FIELD])]},
    "same variables": {"containers": [gpus(env=variables(NCCL_SOCKET_IFNAME="=eth0", NCCL_NET_GDR_READ="1"))]},
    "resources": {"containers": [gpus(more={RESOURCES[0]: "3", "cpu": "1", "memory": "1Gi"})]},
    "too few devices": {"containers": [gpus(more={"vpc.amazonaws.com/efa": "3"})]},
    "devices elsewhere": {"containers": [gpus(), {**gpus("d", 0, {RESOURCES[0]: "1", "vpc.amazonaws.com/efa": "5"})}]},
    "memory": {"containers": [gpus(volumeMounts=[{"name": "mine", "mountPath": "/dev/shm"}])], "volumes": [MEMORY]},
    "memory in one": {
        "containers": [gpus("a", volumeMounts=[{"name": "mine", "mountPath": "/dev/shm"}]), gpus("b")],
        "volumes": [MEMORY],
    },
    "our memory": {
        "containers": [gpus(volumeMounts=[{"name": "railwright-shm", "mountPath": "/dev/shm"}])],
        "volumes": [{"name": "railwright-shm", "emptyDir": {}}],
    },
    "other mounts": {"containers": [gpus(volumeMounts=[{"name": "mine", "mountPath": "/data"}])], "volumes": [MEMORY]},
    "host /dev": {
        "containers": [gpus(volumeMounts=[{"name": "dev", "mountPath": "/dev"}])],
        "volumes": [{"name": "dev", "hostPath": {"path": "/dev"}}],
    },
    "host IPC": {"containers": [gpus()], "hostIPC": True},
    "host network": {"containers": [gpus()], "hostNetwork": True},
    "capabilities": {"containers": [gpus(securityContext={"runAsUser": 0, "capabilities": {"add": ["CAP_IPC_LOCK"]}})]},
    "dropped": {"containers": [gpus(securityContext={"capabilities": {"drop": ["SYS_NICE", "ALL"]}})]},
    "security of one": {"containers": [gpus("a", securityContext={"runAsUser": 0}), gpus("b")]},
    "envFrom": {"containers": [gpus(envFrom=[{"secretRef": {"name": "s"}}])]},
    "envFrom in one": {"containers": [gpus("a", envFrom=[{"secretRef": {"name": "s"}}]), gpus("b")]},
    "envFrom with prefix": {"containers": [gpus(envFrom=[{"prefix": "MY_", "secretRef": {"name": "s"}}])]},
    "fields of spec": {
        "containers": [gpus()],
        "dnsPolicy": "Default",
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    },
    "huge pages and memory": {"containers": [gpus(more={"cpu": "1", "memory": "1Gi"})]},
    "huge pages": {"containers": [gpus(more={"hugepages-2Mi": "1Gi", "cpu": "1", "memory": "1Gi"})]},
    "NVSHMEM": {"containers": [gpus(env=variables(NVSHMEM_DEBUG="INFO"))]},
    "NVSHMEM by index": {"containers": [gpus(env=variables(NVSHMEM_IB_GID_INDEX="3"))]},
    "UCX": {"containers": [gpus(env=variables(UCX_LOG_LEVEL="info"))]},
    "Open MPI": {"containers": [gpus(env=variables(OMPI_MCA_btl="tcp"))]},
    "Open MPI excluded": {"containers": [gpus(env=variables(OMPI_MCA_oob_tcp_if_exclude="lo"))]},
}
# The file has all variables, also those that the container sets (a note of the export).
OTHERWISE = {("File-Both", "own variables")}


def pod(case: dict, fabric: str | None, **metadata) -> dict:
    labels = {} if fabric is None else {FABRIC: fabric}
    spec = {"schedulerName": "nobody", "automountServiceAccountToken": False, **copy.deepcopy(case)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "labels": labels, **metadata},
        "spec": spec,
    }


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def exported(plane):
    """Apply the exported policies, in force in the namespaces with a label only; make such namespaces."""
    made, applied = [], []
    for tree in copy.deepcopy(admission_policies.export(POLICY).objects):
        if tree["kind"].endswith("Binding"):
            selector = tree["spec"].setdefault("matchResources", {}).setdefault("namespaceSelector", {})
            selector.setdefault("matchExpressions", []).append({"key": LABEL, "operator": "Exists"})
        await plane.api.create(tree)
        applied.append(tree)
    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "nvidia"},
        "handler": "nvidia",
    }
    await plane.api.ensure(runtime)

    async def make(**labels: str) -> str:
        name = f"exported-{uuid.uuid4().hex[:6]}"
        await plane.make_namespace(name, {LABEL: "true", **labels})
        made.append(name)
        return name

    probe = await make()
    for fabric in POLICY.document.fabrics:

        async def is_changed(fabric: str = fabric) -> bool:
            try:
                created = await plane.api.create(pod(CASES["one container"], fabric), namespace=probe, dry_run=True)
            except api.ApiError:  # the policy that refuses is in force first
                return False
            return "env" in created["spec"]["containers"][0]

        await waiting.wait(is_changed, describe=f"the exported policy of fabric {fabric} to be in force")
    yield make
    for name in made:
        await plane.remove_namespace(name)
    for tree in applied:
        await plane.api.delete(KIND + tree["kind"], tree["metadata"]["name"])


def comparable(created: dict) -> dict:
    """Return what two pods have in common: all but what the API server generates, the record and the namespace."""
    tree = copy.deepcopy(created)
    for key in ("uid", "resourceVersion", "creationTimestamp", "managedFields", "namespace", "generation"):
        tree["metadata"].pop(key, None)
    annotations = tree["metadata"].pop("annotations", {})
    annotations.pop(INJECTION, None)
    # those that the API server adds come before or after, and their order means nothing
    tree["spec"]["tolerations"].sort(key=json.dumps)
    return tree | {"annotations": annotations}


async def compare(plane, tree: dict, namespace: str, labels: dict[str, str]) -> str:
    """Create a pod with the exported policies, and as the webhook would leave it. Return how the two differ."""
    at = facts.ClusterFacts(namespace=namespace, namespace_labels=labels)
    by_webhook = admitting.admitted(tree, POLICY, at)
    try:
        # in a namespace where the policies are not in force
        expected = await plane.api.create(by_webhook, namespace="default", dry_run=True)
        alone = await plane.api.create(tree, namespace=namespace, dry_run=True)
    except api.ApiError as error:
        return error.message
    lines = [json.dumps(comparable(tree), indent=1).splitlines() for tree in (expected, alone)]
    again = [change for change in admitting.planned(alone, POLICY, at).changes if change.entry]
    return "\n".join([*difflib.unified_diff(*lines, lineterm=""), *map(str, again)])


async def assert_equal(plane, namespace: str, labels: dict[str, str], *fabrics: str | None) -> None:
    different = {
        (fabric, name): difference
        for fabric in fabrics
        for name, case in CASES.items()
        if (fabric, name) not in OTHERWISE
        and (difference := await compare(plane, pod(case, fabric), namespace, labels))
    }
    assert not different, "\n".join(f"{case}:\n{text}" for case, text in different.items())


async def refuse(plane, tree: dict, namespace: str) -> str:
    with pytest.raises(api.ApiError) as refused:
        await plane.api.create(tree, namespace=namespace, dry_run=True)
    return refused.value.message


async def test_pods_equal_those_of_the_webhook(plane, exported):
    await assert_equal(plane, await exported(), {}, *POLICY.document.fabrics, "default")


async def test_pods_of_an_opted_in_namespace_equal_those_of_the_webhook(plane, exported):
    labels = {FABRIC: "efa"}
    await assert_equal(plane, await exported(**labels), labels, None, "ib")


@pytest.mark.parametrize("level", ["privileged", "baseline", "restricted"])
async def test_what_a_pod_security_level_forbids_is_left_out(plane, exported, level):
    labels = {"pod-security.kubernetes.io/enforce": level}
    namespace = await exported(**labels)
    await plane.api.patch(
        "Namespace", namespace, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": None}}}
    )
    await plane.api.patch("Namespace", namespace, {"metadata": {"labels": labels}})
    safe = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    tree = pod({"containers": [gpus(securityContext=safe)]}, "ib")

    async def is_equal() -> bool:  # admission sees the labels of a namespace a moment late
        difference = await compare(plane, tree, namespace, labels)
        assert not difference, difference
        return True

    await waiting.wait(is_equal, describe="the level to be in force")
    if level == "privileged":
        assert not await compare(plane, pod(CASES["one container"], "host"), namespace, labels)
    else:
        message = await refuse(plane, pod(CASES["one container"], "host"), namespace)
        assert f'violates PodSecurity "{level}' in message  # as before the webhook, which names the fabric too
        assert "railwright-infiniband" in message


async def test_pods_that_did_not_opt_in_are_unchanged(plane, exported):
    namespace = await exported()
    for tree in (
        pod(CASES["one container"], None),
        pod(CASES["one container"], "none"),
        pod({"containers": [{"name": "c", "image": "i"}]}, "ib"),
        pod(CASES["one container"], "ib", labels={FABRIC: "ib", "volcano.sh/task-spec": "launcher"}),
    ):
        created = await plane.api.create(tree, namespace=namespace, dry_run=True)
        assert "env" not in created["spec"]["containers"][0]
        assert "volumes" not in created["spec"]
        assert "annotations" not in created["metadata"]


async def test_a_pod_that_asks_for_more_is_refused_with_the_fix(plane, exported):
    namespace = await exported()
    for key, value in (("rails", "1"), ("containers", "c"), ("skip", "env"), ("delivery", "file")):
        tree = pod(CASES["one container"], "ib", annotations={f"railwright.io/{key}": value})
        message = await refuse(plane, tree, namespace)
        assert f"railwright.io/{key}" in message
        assert "remove them, or install the webhook" in message
    zero = pod({"containers": [gpus(more={RESOURCES[1]: "0"})]}, "ib")
    assert f"a request of 0 for {', '.join(RESOURCES)} leaves out a rail" in await refuse(plane, zero, namespace)
    unprivileged = pod({"containers": [gpus(securityContext={"privileged": False})]}, "host")
    assert "fabric host: securityContext.privileged is false" in await refuse(plane, unprivileged, namespace)
    wrong = await refuse(plane, pod(CASES["one container"], "bi"), namespace)
    assert "label railwright.io/fabric bi is not a fabric of the policy; allowed are ib, efa" in wrong


async def test_the_cost_of_a_large_pod_is_bounded(plane, exported):
    """The API server stops an expression at its limit and refuses the pod; a large real pod is far below."""
    namespace = await exported()
    large = [gpus(f"c{k}", env=variables(**{f"NAME_{n}": "v" for n in range(200)})) for k in range(16)]
    assert not await compare(plane, pod({"containers": large}, "ib"), namespace, {})
    names = variables(**{f"N{n}": "" for n in range(300)})
    hostile = [gpus(f"c{k}", env=names) for k in range(100)]
    message = await refuse(plane, pod({"containers": hostile}, "ib"), namespace)
    assert "actual cost limit exceeded" in message
