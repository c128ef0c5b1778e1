"""Gangs with a constraint to HyperNodes: Volcano asks about the nodes of one HyperNode after the other."""

import extending
import msgspec
import placing
import pytest

from railwright.fabric import views

LEAVES = {"a": 3, "b": 4, "c": 5}
HARD = views.NetworkTopology("hard")
CONSTRAINTS = {
    "whole gang": {"network_topology": HARD},
    "parts": {"sub_group_policy": [views.SubGroup(HARD)]},
    "parts without a topology": {"sub_group_policy": [views.SubGroup()]},
}


class Site(extending.Site):
    """Leaves of some nodes, and a gang that Volcano tries in one after the other."""

    def __init__(self, size: int, **constraint: object) -> None:
        super().__init__(placing.leaves(**LEAVES), (), placing.policy(domains=[placing.LEAF]))
        self.gang = [placing.pod(f"job-worker-{rank}", group="g") for rank in range(size)]
        self.add_gang(self.gang, "g")
        self.constrain(**constraint)
        self.close("")

    def constrain(self, **constraint: object) -> None:
        group = placing.build_pod_group("train", "g", len(self.gang))
        spec = msgspec.structs.replace(group.spec, **constraint)
        self.state.cluster.upsert_pod_group(msgspec.structs.replace(group, spec=spec))

    def ask(self, leaf: str, rank: int = 0) -> None:
        """Ask about a pod on the nodes of a leaf."""
        scalars = {"ScalarResources": {placing.GPU: 8000, **dict.fromkeys(placing.RESOURCES, 1000)}}
        idle = {"MilliCPU": 128000, "Memory": 2 << 40, **scalars}
        nodes = [{"Name": name, "Idle": idle, "Allocatable": idle} for name in self.names if name.startswith(leaf)]
        self.ask_volcano("prioritize", {"task": extending.build_task(self.gang[rank]), "nodes": nodes})

    def explain(self):
        return self.verbs.decider.explain("train", self.gang[0].metadata.name)


@pytest.mark.parametrize("constraint", CONSTRAINTS.values(), ids=CONSTRAINTS)
def test_while_a_gang_waits_the_largest_leaf_is_explained(constraint):
    site = Site(6, **constraint)
    for leaf in ("a", "c", "b"):
        site.ask(leaf)
    explanation = site.explain()
    assert {row["node"].partition("-")[0] for row in explanation.nodes} == {"c"}
    assert [why.code for why in explanation.why] == ["CapacityNotOffered"]
    assert explanation.why[0].parameters["slots"] == 5


def test_the_leaf_that_volcano_took_is_explained_whichever_it_tried_last():
    site = Site(3, network_topology=HARD)
    for leaf in LEAVES:
        site.ask(leaf)
    for rank, pod in enumerate(site.gang):
        bound = msgspec.structs.replace(pod.spec, node_name=f"b-0{rank}")
        site.pods.upsert(msgspec.structs.replace(pod, spec=bound))
    explanation = site.explain()
    assert {row["node"].partition("-")[0] for row in explanation.nodes} == {"b"}
    assert explanation.leaves_planned == ["b"]


def test_without_a_constraint_the_last_request_is_explained():
    site = Site(3, network_topology=HARD)
    site.constrain()
    for leaf in LEAVES:
        site.ask(leaf)
    assert {row["node"].partition("-")[0] for row in site.explain().nodes} == {"c"}
    site.ask("a")
    assert {row["node"].partition("-")[0] for row in site.explain().nodes} == {"a"}


def test_a_leaf_that_was_tried_after_the_one_taken_is_no_reason():
    """Volcano may go on with a leaf of the same HyperNode, which the rest of the gang does not fit."""
    site = Site(4, sub_group_policy=[views.SubGroup(HARD)])
    site.ask("b")
    assert site.explain().complete
    site.state.assumed.assume(placing.build_assumed_pod(site.gang[1], "b-00"))
    site.ask("b-01", rank=2)
    assert [why.code for why in site.explain().why] == ["CapacityNotOffered"], "while the gang waits"
    for rank, pod in enumerate(site.gang):
        bound = msgspec.structs.replace(pod.spec, node_name=f"b-0{rank}")
        site.pods.upsert(msgspec.structs.replace(pod, spec=bound))
    assert site.explain().why == ()
