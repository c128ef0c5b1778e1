"""`explain pod` of a pod that has the label and was not injected."""

import msgspec

from railwright.cli import job_pods
from railwright.cli.explanation import pod as pod_explanations
from railwright.fabric import names


def read(label: str) -> pod_explanations.PodRecord:
    metadata = {"name": "p", "namespace": "prod", "labels": {names.FABRIC: label}}
    tree = {"metadata": metadata, "spec": {}}
    return pod_explanations.build_record(msgspec.convert(tree, job_pods.Pod))


def test_explain_pod_reports_a_label_without_an_injection_with_the_fix(capsys):
    assert (read("roce").missed_label, read("none").missed_label) == ("roce", "")
    pod_explanations.print_text(read("roce"))
    text = capsys.readouterr().out
    assert "label railwright.io/fabric 'roce', but not injected: the label was set after the pod's creation" in text
    assert "or the policy was in mode warn; set the label in the pod template, then delete the pod" in text
    pod_explanations.print_text(read("none"))
    assert "did not opt in" in capsys.readouterr().out
