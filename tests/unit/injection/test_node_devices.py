"""Devices that the policy states by node shape: set at admission where every possible node agrees."""

import pytest
from admitting import SHAPES, admit_pod, fabric, gpus, list_mounts, pod, read_env, read_record

HCA = "NCCL_IB_HCA"
MORE_SHAPES = f"""{SHAPES}\
- {{name: c, match: {{gpu: c, nic: old}}, devices: {{rail0: mlx5_0, rail1: mlx5_1}}}}
- {{name: d, match: {{gpu: d}}, devices: {{rail0: mlx5_0, rail1: mlx5_1}}}}
"""
UNNAMED = "[{name: rail0}, {name: rail1}]"
OTHERWISE = "[{name: rail0, device: mlx5_8}, {name: rail1, device: mlx5_9}]"  # on nodes of no shape


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
def test_device_names_are_set_at_admission_if_they_are_equal_on_all_allowed_shapes(operator, allowed, devices):
    expressions = [{"key": key, "operator": operator, "values": values} for key, values in allowed.items()]
    required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    tree = pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})
    assert read_env(admit_pod(tree, fabric(top=MORE_SHAPES, rails=OTHERWISE))).get(HCA) == devices


def test_an_affinity_term_without_requirements_matches_no_node():
    pinned = {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["a"]}]}
    for empty in ({}, {"matchExpressions": []}, {"matchExpressions": None, "matchFields": None}):
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [empty, pinned]}}
        tree = admit_pod(pod(gpus(8), affinity={"nodeAffinity": required}), fabric(top=SHAPES))
        assert read_env(tree)[HCA] == "=mlx5_0,mlx5_1"


@pytest.mark.parametrize("rails", [UNNAMED, "[{name: rail0, device: mlx5_0}, {name: rail1}]"])
def test_device_names_that_differ_between_shapes_are_not_set_and_the_record_has_the_reason(rails):
    after = admit_pod(pod(), fabric(top=SHAPES, rails=rails))
    assert HCA not in read_env(after)
    assert "/etc/nccl.conf" not in list_mounts(after)
    assert read_record(after)["skipped"][f"env.{HCA}"]["code"] == "ValueUnstated"
