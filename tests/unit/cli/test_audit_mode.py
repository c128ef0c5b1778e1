"""Audit mode in `explain`: what would be done, and that nothing was."""

import io
import json

import msgspec
import pytest
import yaml
from admitting import EXAMPLES
from rich.console import Console

from railwright.cli import __main__ as command_line
from railwright.cli.explanation import pod as pod_explanations
from railwright.fabric import names

EXAMPLE = EXAMPLES / "360-roce"


@pytest.fixture
def audit_policy(tmp_path):
    document = yaml.safe_load((EXAMPLE / "policy.yaml").read_text())
    document["mode"] = "audit"
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


def write_pod(tmp_path, **annotations: str) -> str:
    keys = {f"railwright.io/{key}": value for key, value in annotations.items()}
    spec = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": 8}}}]}
    metadata = {"name": "p", "labels": {names.FABRIC: "default"}, "annotations": keys}
    path = tmp_path / "pod.yaml"
    path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
    return str(path)


def test_explain_shows_each_change_that_would_be_made(tmp_path, capsys, audit_policy):
    assert command_line.main(["explain", write_pod(tmp_path), "--policy", audit_policy]) == 0
    text = capsys.readouterr().out
    assert "audit mode: unchanged but for the record; it would be injected: fabric" in text
    assert "env NCCL_IB_HCA" in text
    assert "WouldInject: " in text
    assert "1 template: 0 injected, 0 refused, 0 unchanged, 1 unchanged in audit mode" in text
    assert command_line.main(["explain", write_pod(tmp_path), "--policy", audit_policy, "-o", "json"]) == 0
    (preview,) = json.loads(capsys.readouterr().out)
    assert preview["outcome"] == "would-patch"
    assert len(preview["changes"]) > 5
    paths = {operation["path"] for operation in preview["operations"]}
    assert all(path.startswith("/metadata/annotations") for path in paths)


def test_explain_shows_a_rejection_that_would_be_made(tmp_path, capsys, audit_policy):
    assert command_line.main(["explain", write_pod(tmp_path, rails="99"), "--policy", audit_policy]) == 0
    text = capsys.readouterr().out
    assert "audit mode: admitted unchanged; it would be refused: Pod default/p: annotation railwright.io/rails" in text


def read(tree: dict) -> pod_explanations.PodRecord:
    return pod_explanations._build(msgspec.convert(tree, pod_explanations._Pod), ())


def render(tree: dict) -> str:
    console = Console(file=io.StringIO(), width=400)
    console.print(pod_explanations.render(read(tree)))
    return console.file.getvalue()


def build_pod(record: dict | None, label: str = "roce") -> dict:
    annotations = {} if record is None else {names.INJECTION: json.dumps(record)}
    metadata = {"name": "p", "namespace": "prod", "labels": {names.FABRIC: label}, "annotations": annotations}
    return {"metadata": metadata, "spec": {}}


def test_explain_pod_shows_the_changes_that_audit_mode_left_out():
    record = {"mode": "audit", "fabric": "roce", "rails": ["rail0"], "added": ["networks", "devices"]}
    described = render(build_pod(record))
    assert "created in audit mode, so not changed by railwright; by fabric roce it would have got networks" in described
    assert "it would have been rejected: rails" in render(build_pod({"mode": "audit", "rejected": "rails"}))


def test_explain_pod_reports_a_label_that_was_set_after_creation_with_the_fix():
    text = render(build_pod(None))
    assert pod_explanations.is_finding(read(build_pod(None)))
    assert not pod_explanations.is_finding(read(build_pod(None, label="none")))
    assert "label railwright.io/fabric 'roce', but not injected: the label was set after the pod's creation" in text
    assert "set it in the pod template, then delete the pod, so that it is created again" in text
    assert "did not opt in" in render(build_pod(None, label="none"))
