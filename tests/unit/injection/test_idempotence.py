"""Planning an admitted pod again changes nothing, for any pod; every refusal is one sentence."""

import copy

import admitting
from admitting import fabric
from hypothesis import given
from hypothesis import strategies as st

from railwright.fabric.injection import pod_changes

SHAPES = """nodeShapes:
- {name: a, match: {gpu: a}, devices: {rail0: mlx5_0, rail1: mlx5_1}}
"""
POLICIES = (
    fabric(
        "    security: {capabilities: [IPC_LOCK, SYS_NICE]}\n    mounts: {sharedMemory: 1Gi}\n"
        "    nccl: {delivery: both}\n"
    ),
    fabric(
        "    env: {NCCL_DEBUG: INFO, A: b}\n    forceEnv: [A, NCCL_IB_HCA]\n    annotations: {x/y: z}\n",
        top=SHAPES + "roles: {launchers: always}\nclusterWideNetworks: 1\n",
    ),
    fabric(
        "    preflight: {enabled: true}\n    security: {privileged: true}\n"
        "    mounts: {devInfiniband: true}\n    devicesPerRail: 2\n"
        "    railsPerPod: proportional\n    gpusPerNode: 4\n    nccl: {delivery: file}\n",
        rails="[{name: rail0, network: prod/vf.a, interface: r0}, {name: rail1, network: prod/vf.a, interface: r1}]",
    ),
)
FACTS = tuple(
    admitting.known(namespace_labels=labels, networks=networks)
    for labels in (None, {"pod-security.kubernetes.io/enforce": "baseline"})
    for networks in (None, {("prod", "lan2"): None, ("prod", "lan3"): "nvidia.com/mlx5_1", ("prod", "vf.a"): "x.y/vf"})
)

quantities = st.sampled_from(["0", "1", "2", "3", "1000m", 1])
resources = st.dictionaries(st.sampled_from(["nvidia.com/gpu", "nvidia.com/mlx5_0", "x.y/vf", "cpu"]), quantities)
names = st.sampled_from(["A", "NCCL_DEBUG", "NCCL_IB_HCA", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "MPI_HOST"])
entries = st.one_of(
    st.builds(lambda name, value: {"name": name, "value": value}, names, st.sampled_from(["b", "INFO", "=eth0", ""])),
    st.builds(lambda name: {"name": name, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, names),
)
contexts = st.fixed_dictionaries(
    {},
    optional={
        "privileged": st.booleans(),
        "runAsUser": st.just(0),
        "capabilities": st.fixed_dictionaries(
            {}, optional={"add": st.lists(st.sampled_from(["IPC_LOCK", "ALL", "KILL"])), "drop": st.just(["ALL"])}
        ),
    },
)
mounts = st.builds(
    lambda path: {"name": "own", "mountPath": path}, st.sampled_from(["/dev/shm", "/etc/nccl.conf", "/dev/infiniband/"])
)
containers = st.fixed_dictionaries(
    {"image": st.just("i")},
    optional={
        "env": st.lists(entries, max_size=4),
        "envFrom": st.just([{"secretRef": {"name": "s"}}]),
        "resources": st.fixed_dictionaries({}, optional={"requests": resources, "limits": resources}),
        "securityContext": contexts,
        "volumeMounts": st.lists(mounts, max_size=2),
    },
)
annotations = st.fixed_dictionaries(
    {},
    optional={
        "k8s.v1.cni.cncf.io/networks": st.sampled_from(
            ["", "lan2", "other@x", "lan3,lan3", '[{"name":"vf.a","x":1}]', "[]", "a,,b", "a@net2", "[ ]"]
        ),
        "railwright.io/rails": st.sampled_from(["1", "rail1", "rail0-rail1", "9"]),
        "railwright.io/containers": st.sampled_from(["c0", "c1", "c0,c1"]),
        "railwright.io/delivery": st.sampled_from(["env", "file"]),
        "railwright.io/skip": st.sampled_from(["env", "networks,devices", "security"]),
        "railwright.io/injection": st.just("{}"),
        "railwright.io/nccl.conf": st.just("x=y\n"),
        "x/y": st.sampled_from(["z", "other"]),
        "kubectl.kubernetes.io/default-container": st.sampled_from(["c1", "istio-proxy"]),
    },
)
labels = st.fixed_dictionaries(
    {"railwright.io/fabric": st.just("f")},
    optional={
        "training.kubeflow.org/job-role": st.sampled_from(["launcher", "worker"]),
        "volcano.sh/job-name": st.just("j"),
        "volcano.sh/task-spec": st.sampled_from(["mpimaster", "worker"]),
        "ray.io/node-type": st.sampled_from(["head", "worker"]),
    },
)
specs = st.fixed_dictionaries(
    {"containers": st.lists(containers, min_size=1, max_size=2)},
    optional={
        "hostNetwork": st.booleans(),
        "hostIPC": st.booleans(),
        "nodeSelector": st.just({"gpu": "a"}),
        "volumes": st.lists(st.just({"name": "own", "emptyDir": {}}), max_size=1),
    },
)


@st.composite
def pods(draw):
    spec = draw(specs)
    proxy = draw(st.sampled_from([None, None, 0, 1]))
    for index, container in enumerate(spec["containers"]):
        container["name"] = "istio-proxy" if index == proxy else f"c{index}"
    metadata = {"name": "p", "namespace": "prod", "labels": draw(labels)}
    if draw(st.booleans()):
        metadata["annotations"] = draw(annotations)
    return {"metadata": metadata, "spec": copy.deepcopy(spec)}


@given(pods(), st.sampled_from(POLICIES), st.sampled_from(FACTS))
def test_an_admitted_pod_planned_again_is_not_changed_and_not_refused(tree, by, at):
    outcome = admitting.planned(tree, by, at)
    if isinstance(outcome, pod_changes.Refusal):
        assert outcome.message.startswith("Pod prod/p: ")
        return
    once = admitting.admitted(tree, by, at)
    again = admitting.planned(once, by, at)
    assert isinstance(again, pod_changes.Injection), again
    assert again.changes == ()
    assert (again.rails, again.role, again.containers) == (outcome.rails, outcome.role, outcome.containers)


@given(pods(), st.sampled_from(POLICIES), st.sampled_from(FACTS))
def test_what_the_user_wrote_stays(tree, by, at):
    if isinstance(admitting.planned(tree, by, at), pod_changes.Refusal):
        return
    after = admitting.admitted(tree, by, at)
    for before, now in zip(tree["spec"]["containers"], after["spec"]["containers"], strict=True):
        own = before.get("env", [])
        forced = by.document.fabrics["f"].force_env
        assert [e for e in now.get("env", [])[: len(own)] if e["name"] not in forced] == [
            e for e in own if e["name"] not in forced
        ]
        assert now.get("volumeMounts", [])[: len(before.get("volumeMounts", []))] == before.get("volumeMounts", [])
        for capability in before.get("securityContext", {}).get("capabilities", {}).get("add", []):
            assert capability in now["securityContext"]["capabilities"]["add"]
