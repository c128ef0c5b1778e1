"""Another webhook changes the pod between two calls: no addition occurs twice, and its changes stay."""

from collections import Counter

import exploration
import peers
import pytest
from admitting import LAUNCHER, admit_pod, build_facts, cpu, fabric, gpus, plan_pod, pod, read_limits, read_record
from hypothesis import assume, given
from hypothesis import strategies as st

from railwright.fabric.injection import plan
from railwright.fabric.multus import network_selection

POOLS = {("prod", "vf"): "x.y/vf", ("prod", "lan2"): None, ("prod", "lan3"): None, ("prod", "theirs"): "x.y/vf"}
AT = build_facts(networks=POOLS)
VFS = """
    - {name: rail0, network: prod/vf, resource: x.y/vf, device: mlx5_0}
    - {name: rail1, network: prod/vf, device: mlx5_1}
"""
MORE = "    security: {capabilities: [IPC_LOCK]}\n    mounts: {sharedMemory: 1Gi}\n"
POLICIES = {
    "roce": fabric(MORE),
    "roce, a pool": fabric("", rails=VFS),
    "infiniband": fabric(MORE, transport="infiniband", rails="[{name: rail0, resource: x.y/hca, device: mlx5_0}]"),
    "erdma, by file": fabric("", transport="erdma", rails="[{name: r, resource: x.y/e}]"),
    "pvrdma": fabric(
        "    mounts: {devInfiniband: true}\n    security: {privileged: true}\n",
        transport="pvrdma",
        rails="[{name: rail0, device: vmw0}]",
    ),
    "pvrdma, bare": fabric(transport="pvrdma", rails="[{name: rail0, device: vmw0}]"),
    "efa": fabric("    env: {FI_X: '1'}\n", transport="efa", rails="[{name: r, resource: x.y/efa}]"),
    "tcp": fabric(transport="tcp", rails=""),
}
EXTRA = ("mesh", "logs")  # containers of other webhooks

OWN = [
    {"name": "NCCL_DEBUG", "value": "INFO"},
    {"name": "NCCL_SOCKET_IFNAME", "value": "own"},
    {"name": "FI_X", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
]
FROM = [{"secretRef": {"name": "s"}}]
VOLUME = [{"name": "own", "emptyDir": {}}]
REQUESTING = gpus(8) | {"resources": {"limits": {"nvidia.com/gpu": "8", "x.y/vf": "1000m"}}}
PODS = (
    pod(),
    pod(cpu("a"), gpus(8, "b", securityContext={"capabilities": {"add": ["KILL"]}}), cpu("c")),
    pod(cpu("a"), cpu("b", env=OWN), annotations={"railwright.io/rails": "1"}),
    pod(cpu("a"), gpus(8, "b", envFrom=FROM)),
    pod(gpus(8, env=OWN, securityContext={"capabilities": {"drop": ["ALL"]}}), cpu("a")),
    pod(gpus(8, volumeMounts=[{"name": "own", "mountPath": "/dev/shm"}]), volumes=VOLUME),
    pod(gpus(8, env=OWN), annotations={peers.NETWORKS: '[{"name":"vf","x":1}]', "railwright.io/delivery": "file"}),
    pod(REQUESTING, annotations={peers.NETWORKS: "vf,vf"}),
    pod(annotations={peers.NETWORKS: "mine@x", "railwright.io/skip": "env,devices"}),
    pod(cpu("a"), cpu("b", envFrom=FROM), labels=LAUNCHER),
)
pods = st.sampled_from(PODS)
actions = st.lists(st.sampled_from(sorted(peers.ACTIONS)), max_size=3)


def call(tree: dict, by) -> dict | None:
    """Return the pod after our call; None if it is refused."""
    return None if isinstance(plan_pod(tree, by, AT), plan.Refusal) else admit_pod(tree, by, AT)


def check_nothing_twice(tree: dict) -> None:
    for container in tree["spec"]["containers"]:
        for key, what in (("env", "name"), ("volumeMounts", "mountPath")):
            assert max(Counter(item[what] for item in container.get(key, [])).values(), default=1) == 1, container
        added = container.get("securityContext", {}).get("capabilities", {}).get("add", [])
        assert len(added) == len(set(added))
    assert max(Counter(volume["name"] for volume in tree["spec"].get("volumes", [])).values(), default=1) == 1


@exploration.wide
@given(pods, st.sampled_from(sorted(POLICIES)), st.lists(actions, min_size=1, max_size=3))
def test_a_second_admission_adds_nothing_twice_after_changes_of_other_webhooks(tree, name, rounds):
    by = POLICIES[name]
    after = call(tree, by)
    assume(after is not None)
    for names in rounds:
        after = call(peers.apply_actions(after, names), by)
        assume(after is not None)
        again = plan_pod(after, by, AT)
        assert again.changes == ()
        check_nothing_twice(after)


HARMLESS = sorted(set(peers.ACTIONS) - {"drop_last_container", "drop_last_variable"})


@exploration.wide
@given(pods, st.sampled_from(sorted(POLICIES)), st.lists(st.sampled_from(HARMLESS), max_size=4))
def test_a_second_admission_keeps_the_target_containers_of_the_first(tree, name, names):
    by = POLICIES[name]
    first = call(tree, by)
    assume(first is not None)
    before = read_record(first)["containers"]
    # without an accelerator and without the record nothing says which of several containers has the rails
    assume("drop_record" not in names or any(_is_accelerated(item) for item in tree["spec"]["containers"]))
    last = call(peers.apply_actions(first, names), by)
    assume(last is not None)
    assume(any(container["name"] in before and _holds(container, tree) for container in first["spec"]["containers"]))
    assert sorted(read_record(last)["containers"]) == sorted(before)
    for container in last["spec"]["containers"]:
        if container["name"] in EXTRA:
            assert not any(entry["name"].startswith(("NCCL_", "FI_")) for entry in container.get("env", []))
            assert not container.get("resources", {}).get("limits")
            assert "securityContext" not in container


def _is_accelerated(container: dict) -> bool:
    limits = container.get("resources", {}).get("limits", {})
    return limits.get("nvidia.com/gpu", "0") not in ("0", 0)


def _holds(container: dict, tree: dict) -> bool:
    """Return True if injection changed the container. An unchanged one cannot be recognized."""
    before = next(earlier for earlier in tree["spec"]["containers"] if earlier["name"] == container["name"])
    return container != before


# --- Network Resources Injector ---------------------------------------------------------------------------

TWO = fabric(rails=VFS)


@pytest.mark.parametrize("inject", [peers.inject_resources, peers.inject_missing_resources])
@pytest.mark.parametrize("written", [None, "vf", "prod/vf,vf", "theirs"])
def test_devices_requested_by_another_injector_are_not_requested_twice(inject, written):
    annotations = {} if written is None else {peers.NETWORKS: written}
    before = inject(pod(cpu("first"), gpus(8, "train"), annotations=annotations), POOLS)
    after = admit_pod(before, TWO, AT)
    attached = network_selection.parse_networks(after["metadata"]["annotations"][peers.NETWORKS], "prod")
    asked = [int(read_limits(after, index).get("x.y/vf", "0")) for index in (0, 1)]
    assert sum(asked) == len(attached) == (3 if written == "theirs" else 2)
