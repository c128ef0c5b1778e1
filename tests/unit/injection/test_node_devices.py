"""Device lists that depend on the node and are written at binding (docs/interface.md 3.3)."""

import json

import pytest
from admitting import SHAPES, admitted, env, fabric, gpus, known, messages, mounts, planned, pod, record, skipped, view

from railwright.fabric import node_views, views
from railwright.fabric.injection import binding

CONF, HCA = "railwright.io/nccl.conf", "NCCL_IB_HCA"
MORE_SHAPES = f"""{SHAPES}\
- {{name: c, match: {{gpu: c, nic: old}}, devices: {{rail0: mlx5_0, rail1: mlx5_1}}}}
- {{name: d, match: {{gpu: d}}, devices: {{rail0: mlx5_0, rail1: mlx5_1}}}}
"""
UNNAMED = "[{name: rail0}, {name: rail1}]"
OTHERWISE = "[{name: rail0, device: mlx5_8}, {name: rail1, device: mlx5_9}]"  # on nodes of no shape


def bound(tree: dict, by, gpu: str, allocatable: dict | None = None) -> dict:
    node = node_views.Node(
        metadata=views.ObjectMeta(name="n", labels_or_none={"gpu": gpu}),
        status=node_views.NodeStatus(allocatable_or_none=allocatable),
    )
    written = binding.bind(view(tree), by, known(), node)
    return dict(written.annotations) if written else {}


@pytest.mark.parametrize(
    ("operator", "allowed", "devices"),
    [
        ("In", {"gpu": ["a", "d"]}, "=mlx5_0,mlx5_1"),
        ("In", {"gpu": ["a", "c"], "nic": ["old"]}, "=mlx5_0,mlx5_1"),
        ("In", {"gpu": ["a", "c"]}, None),  # a node of gpu c may have no shape
        ("In", {"gpu": ["a", "e"]}, None),
        ("In", {"gpu": ["a", "b"]}, None),
        ("In", {"gpu": ["e"]}, "=mlx5_8,mlx5_9"),
        ("NotIn", {"gpu": ["a", "b", "c", "d"]}, "=mlx5_8,mlx5_9"),
    ],
)
def test_devices_are_set_at_admission_if_all_allowed_shapes_agree(operator, allowed, devices):
    expressions = [{"key": key, "operator": operator, "values": values} for key, values in allowed.items()]
    required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    tree = pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})
    assert env(admitted(tree, fabric(top=MORE_SHAPES, rails=OTHERWISE))).get(HCA) == devices


def test_a_forced_list_that_comes_with_the_node_takes_the_place_of_the_pods_own():
    """An entry of the environment would override the file (docs/interface.md 3.3)."""
    policy = fabric("    forceEnv: [NCCL_IB_HCA, NCCL_DEBUG]\n    nccl: {debug: INFO}\n", top=SHAPES, rails=UNNAMED)
    own = [{"name": HCA, "value": "mlx5"}, {"name": "NCCL_DEBUG", "value": "WARN"}, {"name": "A", "value": "1"}]
    tree = pod(gpus(8, env=[*own, {"name": HCA, "value": "mlx5_9"}]))
    assert any("the pod's own value was removed" in warning for warning in messages(planned(tree, policy)))
    after = admitted(tree, policy)
    assert HCA not in env(after)
    assert env(after).items() >= {"NCCL_DEBUG": "INFO", "A": "1"}.items()
    assert bound(after, policy, "b")[CONF] == "NCCL_IB_HCA==mlx5_2,mlx5_3\n"
    assert planned(after, policy).changes == ()


def test_a_pod_that_names_its_node_gets_a_warning_that_it_is_not_bound():
    policy = fabric(top=SHAPES, rails=UNNAMED)
    tree = pod(nodeName="gpu-3")
    assert any("spec.nodeName" in warning for warning in messages(planned(tree, policy)))
    after = admitted(tree, policy)
    assert skipped(after)["env.NCCL_IB_HCA"].startswith("spec.nodeName is set: ")
    assert CONF not in after["metadata"]["annotations"]
    assert messages(planned(pod(nodeName="gpu-3", nodeSelector={"gpu": "b"}), policy)) == ()


def test_a_placement_that_would_not_fit_is_left_out():
    """The API server would reject even status updates of a pod over the limit."""
    policy = fabric()
    tree = pod(annotations={"x": ""})
    used = sum(len(key) + len(value) for key, value in admitted(tree, policy)["metadata"]["annotations"].items())
    full = pod(annotations={"x": "y" * (256 * 1024 - used)})
    assert bound(admitted(full, policy), policy, "a") == {}
    less = pod(annotations={"x": "y" * (256 * 1024 - used - 200)})
    assert bound(admitted(less, policy), policy, "a").keys() == {"railwright.io/placement"}


COUNTED = "[{name: rail0, resource: x.y/r0}, {name: rail1, resource: x.y/r1}]"


@pytest.mark.parametrize(
    ("allocatable", "devices", "rails"),
    [
        ({"x.y/r0": "1", "x.y/r1": "1"}, "mlx5_2,mlx5_3", ["rail0", "rail1"]),
        ({"x.y/r0": "0", "x.y/r1": "1"}, "mlx5_3", ["rail1"]),
        ({"x.y/r0": "1"}, "mlx5_2", ["rail0"]),
        ({"x.y/r0": "0"}, "mlx5_2,mlx5_3", ["rail0", "rail1"]),  # an empty list would be every device of the node
        (None, "mlx5_2,mlx5_3", ["rail0", "rail1"]),
    ],
)
def test_a_missing_rail_is_in_neither_list(allocatable, devices, rails):
    policy = fabric(top=SHAPES, rails=COUNTED)
    written = bound(admitted(pod(), policy), policy, "b", allocatable)
    assert written[CONF] == f"NCCL_IB_HCA=={devices}\n"
    assert json.loads(written["railwright.io/placement"])["rails"] == rails


def test_rails_that_share_a_pool_are_given_while_it_has_any_device():
    shared = "[{name: rail0, resource: x.y/vf}, {name: rail1, resource: x.y/vf}]"
    policy = fabric(top=SHAPES, rails=shared)
    assert bound(admitted(pod(), policy), policy, "a", {"x.y/vf": "1"})[CONF] == "NCCL_IB_HCA==mlx5_0,mlx5_1\n"


def test_a_list_that_admission_wrote_is_not_written_anew_for_a_dead_rail():
    """The environment beats the file: what is in it cannot be taken back at binding."""
    policy = fabric(
        rails="[{name: rail0, resource: x.y/r0, device: mlx5_0}, {name: rail1, resource: x.y/r1, device: mlx5_1}]"
    )
    written = bound(admitted(pod(), policy), policy, "a", {"x.y/r1": "1"})
    assert written.keys() == {"railwright.io/placement"}
    assert json.loads(written["railwright.io/placement"])["rails"] == ["rail1"]


def test_a_term_without_requirements_matches_no_node_and_leaves_the_others_to_decide():
    pinned = {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["a"]}]}
    for empty in ({}, {"matchExpressions": []}, {"matchExpressions": None, "matchFields": None}):
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [empty, pinned]}}
        tree = admitted(pod(gpus(8), affinity={"nodeAffinity": required}), fabric(top=SHAPES))
        assert env(tree)[HCA] == "=mlx5_0,mlx5_1"


def test_the_list_is_written_if_only_the_placement_does_not_fit():
    policy = fabric(top=SHAPES, rails=UNNAMED)
    after = admitted(pod(), policy)
    size = sum(len(key) + len(value) for key, value in after["metadata"]["annotations"].items())
    after["metadata"]["annotations"]["x"] = "y" * (256 * 1024 - size - 1)
    assert bound(after, policy, "b") == {CONF: "NCCL_IB_HCA==mlx5_2,mlx5_3\n"}


def test_a_shape_without_devices_leaves_the_list_to_the_binding():
    policy = fabric(top=SHAPES.replace(", devices: {rail0: mlx5_2, rail1: mlx5_3}", ""), rails=UNNAMED)
    after = admitted(pod(), policy)
    assert "NCCL_IB_HCA" not in env(after)
    assert bound(after, policy, "a")[CONF] == "NCCL_IB_HCA==mlx5_0,mlx5_1\n"
    assert bound(after, policy, "b")[CONF] == ""


@pytest.mark.parametrize("transport", ["efa", "erdma"])
def test_a_transport_that_names_no_devices_by_node_waits_for_none(transport):
    after = admitted(pod(), fabric(top=SHAPES, rails=UNNAMED, transport=transport))
    assert "/etc/nccl.conf" not in mounts(after)
    assert "env.NCCL_IB_HCA" not in record(after)["skipped"]


def test_a_device_list_that_no_line_of_the_file_can_hold_does_not_break_the_binding():
    many = [f"rail{number}" for number in range(40)]
    top = "nodeShapes:\n" + "".join(
        f"- {{name: {name}, match: {{gpu: {name}}}, devices: {{{devices}}}}}\n"
        for name, devices in (
            ("a", ", ".join(f"{rail}: mlx5_{rail}" for rail in many)),
            ("b", ", ".join(f"{rail}: {rail}{'x' * 30}" for rail in many)),
        )
    )
    policy = fabric(top=top, rails=str([{"name": rail} for rail in many]))
    assert CONF in bound(admitted(pod(), policy), policy, "a")
    assert bound(admitted(pod(), policy), policy, "b")[CONF] == ""
