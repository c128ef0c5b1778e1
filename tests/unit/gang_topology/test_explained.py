"""`railwright explain` names the scheduler that places a gang, and the fields that it reads."""

import json

import msgspec
import pytest

from railwright.cli import __main__ as command_line
from railwright.cli import job_pods
from railwright.cli.explanation import pod as pod_explanations

POLICY = """
apiVersion: railwright.io/v1alpha1
fabrics:
  f:
    transport: infiniband
    rails: [{name: rail0, resource: nvidia.com/mlx5_0}]
    placement: {domains: [hypernode/level-1], gangTopology: required}
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
        for name, text in {"job": json.dumps(tree), "policy": POLICY}.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        files = (str(tmp_path / "job.yaml"), f"--policy={tmp_path}/policy.yaml")
        assert command_line.main(["explain", *files, *options]) == 0
        return capsys.readouterr().out

    return run


def test_explain_names_the_scheduler_and_what_it_reads(explain):
    line = (
        "topology: Volcano decides where the gang runs; TopologyRequested: "
        "metadata.annotations.scheduling.volcano.sh/group-min-member, volcano.sh/network-topology-highest-tier, "
        "volcano.sh/network-topology-mode asks Volcano to keep the 2 pods in one domain of hypernode/level-1 (required)"
    )
    assert line in explain(build_job(2, schedulerName="volcano"))


def test_explain_says_why_nothing_is_written(explain):
    (document,) = json.loads(explain(build_job(2), "-o", "json"))
    assert document["topology"]["scheduler"] == "kube-scheduler"
    assert document["topology"]["reason"]["code"] == "TopologyNotWritten"


def test_explain_pod_shows_the_record(capsys):
    reason = {"code": "TopologyNotWritten", "message": "with spec.minAvailable fewer start"}
    record = {"scheduler": "Volcano", "mode": "required", "reason": reason}
    metadata = {"name": "p", "namespace": "prod", "annotations": {"railwright.io/topology": json.dumps(record)}}
    made = pod_explanations.build_record(msgspec.convert({"metadata": metadata}, job_pods.Pod))
    pod_explanations.print_text(made)
    assert (
        "topology: Volcano decides where the gang runs; TopologyNotWritten: with spec.minAvailable"
        in capsys.readouterr().out
    )
