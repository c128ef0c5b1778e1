"""`explain pod` prints the extender's explanation: the pod's own node, and nodes without room."""

import json

import msgspec
import pytest

from railwright.cli import job_pods
from railwright.cli.explanation import pod
from railwright.fabric import names
from railwright.fabric.overview import overview_types

SHORT = {"code": "DeviceShortage", "message": "nvidia.com/gpu has 8 of 8 free, 16 needed"}
TERMS = {"rails": {"value": 1.0, "message": "4 of 4 rails free"}}


GANG = {"key": "train/llm", "name": "llm", "namespace": "train", "fabric": "roce", "colour": 0, "size": 4}


@pytest.fixture
def render(capsys):
    def print_explanation(state="waiting", placed=0, **explanation) -> list[str]:
        gang = {**GANG, "state": state, "placed": placed}
        body = msgspec.json.encode({"pod": "train/llm-0", "fabric": "roce", "gang": gang, **explanation})
        record = {names.INJECTION: '{"fabric": "roce", "role": "worker"}'}
        metadata = {"name": "llm-0", "namespace": "train", "annotations": record}
        tree = {"metadata": metadata, "spec": {"nodeName": explanation.get("node", "")}}
        record = pod.build_facts(msgspec.convert(tree, job_pods.Pod))
        answer = msgspec.json.decode(body, type=overview_types.Explanation)
        pod.print_facts(msgspec.structs.replace(record, placement=answer))
        return capsys.readouterr().out.splitlines()

    return print_explanation


def test_a_node_without_the_requested_devices_has_no_score(render):
    nodes = [{"node": "node-a", "score": 29.5, "leaf": "leaf-1", "fits": False, "reasons": [SHORT], "terms": TERMS}]
    lines = render(candidate_nodes=1, nodes=nodes)
    assert lines[-2].split(maxsplit=2) == ["node-a", "leaf-1", SHORT["message"]]
    assert lines[-1] == "1 of 1 node: 0 fit, 1 rejected"


def test_explain_pod_names_all_causes_why_a_node_does_not_fit(render):
    causes = {
        "reasons": [{"code": "NodeIneligible", "message": "cordoned"}],
        "rejection": {"code": "RailBroken", "message": "rail0 is broken"},
    }
    lines = render(candidate_nodes=1, nodes=[{"node": "node-a", "score": 29.5, "fits": False, **causes}])
    assert lines[-2].split(maxsplit=1) == ["node-a", "rail0 is broken; cordoned"]


def test_the_node_of_a_placed_pod_is_marked(render):
    nodes = [{"node": name, "score": 100.0, "terms": TERMS} for name in ("node-a", "node-b")]
    lines = render("placed", 4, candidate_nodes=2, nodes=nodes, node="node-b", scheduler="volcano")
    assert lines[0] == "Pod train/llm-0 on node node-b: fabric roce, role worker"
    assert lines[1] == "placed: 4 of 4 pods of gang llm placed, scheduler volcano"
    assert [line.split()[:2] for line in lines[-3:-1]] == [["node-a", "100.0"], ["node-b", "*"]]
    assert lines[-1] == "2 of 2 nodes: 2 fit, 0 rejected; * node-b runs the pod"


def test_fitting_and_rejected_nodes_are_counted_separately(render):
    rejected = {"node": "gpu-1", "score": 0.0, "fits": False}
    nodes = [{"node": "gpu-2", "score": 76.0}, rejected]
    assert render(candidate_nodes=1, nodes=nodes)[-1] == "2 of 2 nodes: 1 fit, 1 rejected"
    assert render(candidate_nodes=5000, nodes=nodes)[-1] == "2 of 5000 nodes: 1 fit, 1 rejected"


def test_explain_pod_names_the_scheduler_that_has_the_topology_constraint_of_the_gang(capsys):
    reason = {"code": "TopologyNotWritten", "message": "with spec.minAvailable fewer start"}
    record = {"scheduler": "Volcano", "mode": "required", "reason": reason}
    metadata = {"name": "p", "namespace": "prod", "annotations": {"railwright.io/topology": json.dumps(record)}}
    made = pod.build_facts(msgspec.convert({"metadata": metadata}, job_pods.Pod))
    pod.print_facts(made)
    assert (
        "topology: Volcano decides where the gang runs; TopologyNotWritten: with spec.minAvailable"
        in capsys.readouterr().out
    )
