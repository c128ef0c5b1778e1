"""Lint reports the same about values of a policy as about those of a pod."""

import pytest

from railwright.cluster import policies
from railwright.fabric.lint import engine
from railwright.fabric.policy import model

POLICY = """
apiVersion: railwright.io/v1alpha1
fabrics:
  roce:
    transport: roce
    rails:
    - {{name: rail0, network: prod/net0, resource: rdma/a, device: mlx5_0}}
    - {{name: rail1, network: prod/net1, interface: rdma1, resource: rdma/b, device: mlx5_1}}
    env: {{{}}}
"""


def lint(env: str) -> list[str]:
    return lint_policy(POLICY.format(env))


def lint_policy(text: str) -> list[str]:
    policy = policies.read(text)
    assert isinstance(policy, model.Policy), policy
    return [warning.line for warning in engine.list_policy_warnings(policy.document)]


@pytest.mark.parametrize(
    ("env", "code", "says"),
    [
        ('NCCL_IB_HCA: "mlx5_0, mlx5_1"', "N12", "a blank becomes part of the name"),
        ("NCCL_IB_HCA: mlx5_7", "N15", "mlx5_7"),
        ("NCCL_SOCKET_IFNAME: ens3", "N17", "the pod, which has eth0, net1, rdma1"),
        ("NCCL_SOCKET_IFNAME: rdma1", "N18", "a secondary network"),
        ('NCCL_IB_DISABLE: "1"', "N31", "turns RDMA off"),
        ('NCCL_IB_GID_INDEX: "5"', "N21", "remove the variable"),
        ('UCX_NET_DEVICES: "=mlx5_0:1"', "N1", "mlx5_0"),
    ],
)
def test_a_wrong_value_in_env_gives_a_warning_with_the_policy_key(env, code, says):
    warnings = lint(env)
    assert warnings
    assert all(line.partition(": ")[2].startswith(f"fabrics.roce.env: {env.partition(':')[0]}=") for line in warnings)
    assert any(line.startswith(code) and says in line for line in warnings), warnings


def test_correct_values_in_env_give_no_warning():
    assert lint('NCCL_IB_HCA: "=mlx5_0,mlx5_1", NCCL_SOCKET_IFNAME: "=eth0", NCCL_DEBUG: WARN, MY_OWN: x') == []
    assert lint("") == []


HEAD = "apiVersion: railwright.io/v1alpha1\n"
RAIL = "{name: r0, network: p/a, resource: rdma/a}"
SHAPES = "nodeShapes: [{name: s, match: {}, devices: {r0: MLX5_1}}]"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "fabrics: {f: {transport: roce, rails: [{name: r0, resource: rdma/a, device: m1x5_0}]}}",
            "N15: fabrics.f.rails[0].device: m1x5_0 is not the name of a device, but looks like mlx5_0",
        ),
        (
            f"fabrics: {{f: {{transport: roce, rails: [{RAIL}]}}}}\n{SHAPES}",
            "N15: nodeShapes[0].devices.r0: MLX5_1 is not the name of a device, but looks like mlx5_1",
        ),
        (
            f"fabrics: {{f: {{transport: roce, primaryInterface: bond0, rails: [{RAIL}]}}}}",
            "N17: fabrics.f.primaryInterface: bond0 is not an interface of the pods, which have eth0, net1",
        ),
        (
            "fabrics: {f: {transport: tcp, mounts: {sharedMemory: 64Mi}}}",
            "N46: fabrics.f.mounts.sharedMemory: 64Mi is too small: a container with two or more accelerators needs",
        ),
    ],
)
def test_a_device_interface_or_size_that_no_pod_can_use_gives_a_warning_with_the_policy_key(text, says):
    (warning,) = lint_policy(HEAD + text)
    assert warning.startswith(says)


@pytest.mark.parametrize(
    "text",
    [
        "fabrics: {f: {transport: roce, rails: [{name: r0, resource: rdma/a, device: mlx5_bond_0}]}}",
        f"fabrics: {{f: {{transport: roce, primaryInterface: net1, rails: [{RAIL}]}}}}",
        "fabrics: {f: {transport: tcp, primaryInterface: bond0, hostNetwork: true}}",
        f"fabrics: {{f: {{transport: roce, primaryInterface: b0, nccl: {{derive: false}}, rails: [{RAIL}]}}}}",
        "fabrics: {f: {transport: tcp, mounts: {sharedMemory: 1Gi}}}",
    ],
)
def test_a_device_interface_or_size_that_pods_can_use_gives_no_warning(text):
    assert lint_policy(HEAD + text) == []
