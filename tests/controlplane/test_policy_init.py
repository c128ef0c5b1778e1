"""`railwright policy init --from-cluster` on the real API server: nodes of two clouds, by slices and by networks."""

import simulated_clouds
from plane import commands

from railwright.cli.clouds.cluster_objects import Kind
from railwright.cluster import policies
from railwright.fabric.policy import model

SHAPES = {shape.profile.name: shape for shape in reversed(simulated_clouds.SHAPES)}  # the first shape of each profile
NAMES = ("gke-a3-ultra-dranet", "oke-h100-vf")
TREES = {name: simulated_clouds.build(SHAPES[name]) for name in NAMES}
CLASSES = [
    {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", **tree}
    for trees in TREES.values()
    for tree in trees[Kind.DEVICE_CLASS]
]


async def test_a_cluster_of_two_shapes_gets_both_fabrics(plane, nodes, device_classes):
    for trees in TREES.values():
        slices = [{"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **tree} for tree in trees[Kind.SLICE]]
        for tree in trees[Kind.NODE]:
            name = tree["metadata"]["name"]
            rails = {
                key: int(amount)
                for key, amount in tree["status"]["capacity"].items()
                if key not in {"cpu", "nvidia.com/gpu"}
            }
            own = [offered for offered in slices if offered["spec"]["nodeName"] == name]
            more = {"gpus": 8, "rails": rails, "labels": tree["metadata"]["labels"]}
            await (nodes.make_with_slices(name, own, **more) if own else nodes.make(name, **more))
        for tree in trees[Kind.NETWORK][:1]:  # one, which the pods name several times
            definition = {"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", **tree}
            await plane.api.create(definition, namespace="default")
    code, out, err = await commands.railwright("policy", "init", "--from-cluster", kubeconfig=plane.kubeconfig)
    assert code == 0, err
    policy = policies.read(out)
    assert isinstance(policy, model.Policy)
    assert policy.document.fabrics == {SHAPES[name].fabric_name: SHAPES[name].fabric for name in NAMES}
    assert "MISSING" not in out
    assert "NOT READ" not in out
