"""What NUMA nodes mean to a decision: `required` filters, `preferred` scores, `ignore` does neither."""

import msgspec
import pytest
from placing import GPU, RAILS, RESOURCES, asked, book, fleet_of, node, pod, policy

from fabric import views
from fabric.placement import decide
from fabric.policy import model

SHAPE = model.NodeShape(
    name="s",
    match={},
    numa=(
        model.NumaNode(node=0, gpus=(0, 1, 2, 3), rails=RAILS[:2]),
        model.NumaNode(node=1, gpus=(4, 5, 6, 7), rails=RAILS[2:]),
    ),
)
HALF = {GPU: "4", RESOURCES[0]: "1", RESOURCES[1]: "1"}


def with_requests(name, requests, on="", group=""):
    each = pod(name, on=on, group=group)
    container = views.Container(name="c", resources=views.ResourceRequirements(requests_or_none=requests))
    return msgspec.structs.replace(each, spec=views.PodSpec(node_name=on, containers_or_none=[container]))


def verdicts(numa, *, shape=SHAPE):
    """A pod of 4 GPUs and rails 0 and 1: on `near` their NUMA node is free, on `far` its GPUs are taken."""
    nodes = [node("far", "leaf"), node("near", "leaf")]
    taken = [
        with_requests("a", {GPU: "3", RESOURCES[2]: "1"}, on="near"),
        with_requests("b", {GPU: "3"}, on="far"),
    ]
    given = policy(numa=numa)
    document = msgspec.structs.replace(given.document, node_shapes=(shape,) if shape else ())
    asking = with_requests("p-0", HALF, group="g")  # of a gang: a job of one pod uses no rail
    question = asked(asking, ["far", "near"], msgspec.structs.replace(given, document=document))
    return decide.decide(question, fleet_of(nodes, taken, {"train/g": 2}), book()).verdicts


def test_required_filters_a_node_whose_free_gpus_are_away_from_the_rails():
    found = verdicts("required")
    assert found["near"].refusal == ""
    assert "NUMA" in found["far"].refusal
    assert not found["far"].unresolvable, "once the other pod has gone it fits"


def test_preferred_only_scores_and_ignore_does_not_look():
    preferred, ignored = verdicts("preferred"), verdicts("ignore")
    assert preferred["far"].refusal == ignored["far"].refusal == ""
    assert preferred["near"].score > preferred["far"].score
    assert ignored["near"].score == pytest.approx(ignored["far"].score, abs=3), "packing alone"


def test_required_filters_nothing_where_no_layout_is_known():
    assert verdicts("required", shape=None)["far"].refusal == ""
