"""Who wins, and how settings travel (rulings 8, 14, 15)."""

import pytest
from admitting import admitted, cpu, env, fabric, gpus, planned, pod, record

CONF = "railwright.io/nccl.conf"
SHAPES = """nodeShapes:
- {name: a, match: {gpu: a}, devices: {rail0: mlx5_0, rail1: mlx5_1}}
- {name: b, match: {gpu: b}, devices: {rail0: mlx5_2, rail1: mlx5_3}}
"""


def mounts(tree: dict, container: int = 0) -> dict:
    return {each["mountPath"]: each["name"] for each in tree["spec"]["containers"][container].get("volumeMounts", [])}


def test_the_users_value_wins_whatever_its_form_and_is_recorded_as_kept():
    by = fabric("    env: {NCCL_DEBUG: INFO}\n")
    own = [
        {"name": "NCCL_DEBUG", "value": "WARN"},
        {"name": "NCCL_IB_HCA", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "NCCL_SOCKET_IFNAME", "value": "=eth0"},
    ]
    tree = admitted(pod(gpus(8, env=own)), by)
    assert tree["spec"]["containers"][0]["env"][:3] == own
    assert record(tree)["kept"] == {"c": ["NCCL_DEBUG", "NCCL_IB_HCA"]}


def test_where_nothing_travels_by_file_there_is_no_trace_of_one():
    after = admitted(pod(), fabric())
    assert CONF not in after["metadata"]["annotations"]
    assert "volumes" not in after["spec"]


def test_a_literal_beats_the_derived_value():
    assert env(admitted(pod(), fabric("    env: {NCCL_IB_HCA: mlx5}\n")))["NCCL_IB_HCA"] == "mlx5"


def test_a_forced_name_replaces_the_whole_entry_with_a_warning():
    by = fabric("    env: {A: '1'}\n    forceEnv: [A, NCCL_IB_HCA]\n")
    own = [
        {"name": "B", "value": "b"},
        {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "NCCL_IB_HCA", "value": "x"},
    ]
    tree = pod(gpus(8, env=own))
    after = admitted(tree, by)
    assert after["spec"]["containers"][0]["env"][:3] == [
        {"name": "B", "value": "b"},
        {"name": "A", "value": "1"},
        {"name": "NCCL_IB_HCA", "value": "=mlx5_0,mlx5_1"},
    ]
    assert len(planned(tree, by).warnings) == 2
    assert record(after)["kept"] == {}


def test_derive_false_leaves_only_the_literals():
    assert env(admitted(pod(), fabric("    nccl: {derive: false}\n    env: {A: b}\n"))) == {"A": "b"}


def test_a_container_with_envfrom_gets_the_file_and_no_entries():
    source = [{"configMapRef": {"name": "settings"}}]
    tree = pod(gpus(8, envFrom=source))
    after = admitted(tree, fabric())
    assert "env" not in after["spec"]["containers"][0]
    assert after["metadata"]["annotations"][CONF] == "NCCL_SOCKET_IFNAME==eth0\nNCCL_IB_HCA==mlx5_0,mlx5_1\n"
    assert mounts(after) == {"/etc/nccl.conf": "railwright-nccl-conf"}
    (volume,) = after["spec"]["volumes"]
    assert volume["downwardAPI"]["items"] == [
        {"path": "nccl.conf", "fieldRef": {"fieldPath": "metadata.annotations['railwright.io/nccl.conf']"}}
    ]
    (warning,) = planned(tree, fabric()).warnings
    assert "GLOO_SOCKET_IFNAME, TP_SOCKET_IFNAME left out" in warning


@pytest.mark.parametrize(
    ("delivery", "annotation", "in_env", "in_file"),
    [
        ("env", None, True, False),
        ("file", None, False, True),
        ("both", None, True, True),
        ("env", "file", False, True),
        ("file", "env", True, False),
    ],
)
def test_delivery_is_the_policys_or_the_pods_choice(delivery, annotation, in_env, in_file):
    annotations = {"railwright.io/delivery": annotation} if annotation else None
    after = admitted(pod(annotations=annotations), fabric(f"    nccl: {{delivery: {delivery}}}\n"))
    assert ("NCCL_IB_HCA" in env(after)) is in_env
    assert ("NCCL_IB_HCA" in after["metadata"]["annotations"].get(CONF, "")) is in_file
    assert ("/etc/nccl.conf" in mounts(after)) is in_file
    assert env(after)["GLOO_SOCKET_IFNAME"] == "eth0"  # a file cannot carry it


@pytest.mark.parametrize(
    ("labels", "volume"),
    [
        ({"training.kubeflow.org/job-role": "worker"}, "ssh-auth"),
        ({"volcano.sh/job-name": "train"}, "train-ssh"),
    ],
)
def test_ranks_that_ssh_starts_always_get_the_file_and_env_besides(labels, volume):
    container = gpus(8, volumeMounts=[{"name": volume, "mountPath": "/root/.ssh"}])
    tree = pod(container, volumes=[{"name": volume, "secret": {"secretName": volume}}])
    tree["metadata"]["labels"] |= labels
    after = admitted(tree, fabric())
    assert "NCCL_IB_HCA" in after["metadata"]["annotations"][CONF]
    assert "NCCL_IB_HCA" in env(after)


def test_a_file_the_user_mounts_there_is_left_alone():
    container = gpus(8, volumeMounts=[{"name": "own", "mountPath": "/etc/nccl.conf"}])
    tree = pod(container, volumes=[{"name": "own", "configMap": {"name": "x"}}])
    after = admitted(tree, fabric("    nccl: {delivery: file}\n"))
    assert mounts(after) == {"/etc/nccl.conf": "own"}
    assert [volume["name"] for volume in after["spec"]["volumes"]] == ["own"]


def test_what_a_user_writes_into_our_file_is_overwritten_with_a_warning():
    tree = pod(annotations={CONF: "NCCL_ALGO=Ring\n"})
    assert admitted(tree, fabric())["metadata"]["annotations"][CONF] == ""
    assert "its value was replaced" in planned(tree, fabric()).warnings[0]


def test_a_pod_that_pins_a_shape_gets_its_devices_at_admission():
    by = fabric(top=SHAPES, rails="[{name: rail0}, {name: rail1}]")
    assert env(admitted(pod(nodeSelector={"gpu": "b"}), by))["NCCL_IB_HCA"] == "=mlx5_2,mlx5_3"
    terms = [{"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["a"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    affinity = {"nodeAffinity": required}
    assert env(admitted(pod(affinity=affinity), by))["NCCL_IB_HCA"] == "=mlx5_0,mlx5_1"
    terms[0]["matchExpressions"][0] = {"key": "gpu", "operator": "NotIn", "values": ["a"]}
    assert env(admitted(pod(affinity=affinity), by))["NCCL_IB_HCA"] == "=mlx5_2,mlx5_3"


def test_shapes_that_disagree_leave_the_devices_to_the_binding_by_file():
    by = fabric(top=SHAPES, rails="[{name: rail0}, {name: rail1}]")
    after = admitted(pod(), by)
    assert "NCCL_IB_HCA" not in env(after)
    assert "/etc/nccl.conf" in mounts(after)


def test_a_rail_without_a_device_leaves_the_list_out():
    after = admitted(pod(), fabric(rails="[{name: rail0, device: mlx5_0}, {name: rail1}]"))
    assert "NCCL_IB_HCA" not in env(after)
    assert "volumeMounts" not in after["spec"]["containers"][0]


def test_a_launcher_without_accelerators_gets_mpiruns_pins_and_nothing_else():
    by = fabric("    security: {capabilities: [IPC_LOCK]}\n    mounts: {sharedMemory: 1Gi}\n    env: {A: b}\n")
    own = [{"name": "PRTE_MCA_prte_if_exclude", "value": "lo"}]
    tree = pod(cpu(env=own))
    tree["metadata"]["labels"]["training.kubeflow.org/job-role"] = "launcher"
    after = admitted(tree, by)
    assert env(after) == {
        "PRTE_MCA_prte_if_exclude": "lo",
        "OMPI_MCA_btl_tcp_if_include": "eth0",
    }
    assert record(after)["role"] == "launcher"
    assert record(after)["rails"] == []
    assert {"resources", "securityContext", "volumeMounts"}.isdisjoint(after["spec"]["containers"][0])


def test_a_launcher_that_computes_is_a_worker_with_pins():
    tree = pod(gpus(1))
    tree["metadata"]["labels"]["training.kubeflow.org/job-role"] = "launcher"
    after = admitted(tree, fabric())
    assert {"NCCL_IB_HCA", "OMPI_MCA_oob_tcp_if_include"} <= env(after).keys()


@pytest.mark.parametrize(
    ("label", "value", "role"),
    [
        ("trainer.kubeflow.org/trainjob-ancestor-step", "dataset-initializer", "initializer"),
        ("ray.io/node-type", "redis-cleanup", "submitter"),
        ("volcano.sh/task-spec", "ps", "excluded"),
    ],
)
def test_bystanders_get_nothing(label, value, role):
    by = fabric("    env: {A: b}\n", top="roles: {volcanoTasks: {ps: never}}")
    tree = pod(gpus(1))
    tree["metadata"]["labels"][label] = value
    after = admitted(tree, by)
    assert after["spec"] == tree["spec"]
    assert record(after)["role"] == role
    assert "rails" in record(after)["skipped"]


def test_a_tcp_fabric_holds_nccl_to_sockets_and_gives_no_rails():
    after = admitted(pod(), fabric(transport="tcp", rails=""))
    assert env(after)["NCCL_NET"] == "Socket"
    assert record(after)["rails"] == []
    assert "k8s.v1.cni.cncf.io/networks" not in after["metadata"]["annotations"]
