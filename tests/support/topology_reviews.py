"""Reviews of workloads that are being created on a cluster of labelled nodes, and the topology that they get."""

import copy
import json

import admitting
import jsonpatch
import msgspec
import working

from railwright.fabric import node_views
from railwright.serving import turns
from webhook import state

LEAF, SPINE, HOST = "example.com/leaf", "example.com/spine", "kubernetes.io/hostname"
TOPOLOGY = "railwright.io/topology"
JOB = working.kind("Job.batch")
DEVICES = {"nvidia.com/gpu": "8", "nvidia.com/mlx5_0": "1", "nvidia.com/mlx5_1": "1", "cpu": "64", "pods": "110"}


def node(name, leaf, spine="s", *, taints=(), cordoned=False, ready="True", **allocatable):
    tree = {
        "metadata": {"name": name, "labels": {LEAF: leaf, SPINE: spine, "pool": "train"}},
        "spec": {"taints": list(taints), "unschedulable": cordoned},
        "status": {
            "allocatable": DEVICES | allocatable,
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }
    return msgspec.convert(tree, node_views.Node)


def build_state(unlabelled=0, **leaves):
    """Return what is known of nodes in leaves of one spine, the first of each leaf without the label of the host."""
    known = state.State()
    listed = []
    for leaf, size in leaves.items():
        listed += [node(f"{leaf}-{number}", leaf) for number in range(size)]
        for labelled in listed[len(listed) - size + unlabelled :]:
            labelled.metadata.labels[HOST] = labelled.metadata.name
    known.nodes.replace(listed)
    return known


def review(tree, by, at, row=JOB, **request):
    steps = working.workloads.handle(working.review(row, tree, **request), by, admitting.known, at)
    return json.loads(turns.complete(steps).body)["response"]


def create(tree, by, at, row=JOB, **request):
    """Return the workload after its review, by default that of its creation, and the warnings."""
    response = review(tree, by, at, row, **request)
    assert response["allowed"], response
    patched = jsonpatch.apply_patch(copy.deepcopy(tree), admitting.operations(response))
    return patched, response.get("warnings", [])


def ask(mode="required", more=""):
    """Return a policy whose gangs get a topology of leaves and spines; `more` is added to its placement."""
    return admitting.fabric(f"    placement: {{domains: [{LEAF}, {SPINE}], gangTopology: {mode}{more}}}\n")


def ask_for_segments(size, mode="required"):
    """Return a policy whose gangs are divided into segments of so many ranks, each in one leaf."""
    nvlink = f"    nvlink: {{domain: {LEAF}, segment: {size}}}\n"
    return admitting.fabric(f"    placement: {{domains: [{LEAF}, {SPINE}], gangTopology: {mode}}}\n{nvlink}")


def read_topology(holder):
    """Return the record in the pod template of a spec or task."""
    return json.loads(holder["template"]["metadata"]["annotations"][TOPOLOGY])
