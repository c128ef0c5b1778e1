"""`railwright explain` names the scheduler that decides for a gang, and what it reads."""

import io
import json

import msgspec
import pytest
import yaml
from rich.console import Console

from railwright.cli import __main__ as command_line
from railwright.cli.explanation import pod as pod_explanations

POLICY = """
apiVersion: railwright.io/v1alpha1
fabrics:
  f:
    transport: infiniband
    rails: [{name: rail0, resource: nvidia.com/mlx5_0}]
    placement: {preset: volcano, gangTopology: required}
"""
CLUSTER = """
- {apiVersion: v1, kind: Namespace, metadata: {name: prod}}
- apiVersion: v1
  kind: Node
  metadata: {name: n}
  status: {allocatable: {nvidia.com/gpu: "16", nvidia.com/mlx5_0: "2", pods: "110"}}
- apiVersion: topology.volcano.sh/v1alpha1
  kind: HyperNode
  metadata: {name: leaf}
  spec: {tier: 1, members: [{type: Node, selector: {exactMatch: {name: n}}}]}
"""


def build_job(pods, **spec):
    container = {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 8}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container], **spec}}
    metadata = {"name": "t", "namespace": "prod", "labels": {"railwright.io/fabric": "f"}}
    spec = {"parallelism": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


@pytest.fixture
def explain(tmp_path, capsys):
    def run(tree, *options):
        snapshot = "".join(f"---\n{yaml.safe_dump(item)}" for item in yaml.safe_load(CLUSTER))
        for name, text in {"job": json.dumps(tree), "policy": POLICY, "cluster": snapshot}.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        files = (f"--policy={tmp_path}/policy.yaml", f"--snapshot={tmp_path}/cluster.yaml")
        assert command_line.main(["explain", str(tmp_path / "job.yaml"), *files, *options]) == 0
        return capsys.readouterr().out

    return run


def test_explain_names_the_scheduler_and_what_it_reads(explain):
    line = (
        "topology: Volcano decides where the gang runs; TopologyRequested: "
        "metadata.annotations.scheduling.volcano.sh/group-min-member, volcano.sh/network-topology-highest-tier, "
        "volcano.sh/network-topology-mode asks Volcano to keep the 2 pods in one domain of hypernode/level-1"
    )
    assert line in explain(build_job(2, schedulerName="volcano"))


def test_explain_says_why_nothing_is_written(explain):
    assert (
        "topology: Volcano decides where the gang runs; TopologyGangTooLarge: no domain can hold the 3 pods"
        in explain(build_job(3, schedulerName="volcano"))
    )
    (document,) = json.loads(explain(build_job(2), "-o", "json"))
    assert document["topology"]["scheduler"] == "kube-scheduler"
    assert document["topology"]["reason"]["code"] == "TopologyNotServed"


def test_explain_says_nothing_of_a_job_without_a_gang(explain):
    assert "topology: " not in explain(build_job(1))


def test_explain_pod_shows_the_record():
    reason = {"code": "TopologyHardOnly", "parameters": {"field": "spec.scheduling"}}
    record = {"scheduler": "kube-scheduler", "mode": "preferred", "reason": reason}
    metadata = {"name": "p", "namespace": "prod", "annotations": {"railwright.io/topology": json.dumps(record)}}
    made = pod_explanations._build(msgspec.convert({"metadata": metadata}, pod_explanations._Pod), ())
    console = Console(file=io.StringIO(), width=400)
    console.print(pod_explanations.render(made))
    assert "topology, for kube-scheduler: TopologyHardOnly: spec.scheduling has hard" in console.file.getvalue()
