"""`explain pod` of a pod that has the label and was not injected."""

import io

import msgspec
from rich.console import Console

from railwright.cli.explanation import pod as pod_explanations
from railwright.fabric import names


def read(label: str) -> pod_explanations.PodRecord:
    metadata = {"name": "p", "namespace": "prod", "labels": {names.FABRIC: label}}
    tree = {"metadata": metadata, "spec": {}}
    return pod_explanations.build_record(msgspec.convert(tree, pod_explanations._Pod))


def render(label: str) -> str:
    console = Console(file=io.StringIO(), width=400)
    console.print(pod_explanations.render(read(label), None))
    return console.file.getvalue()


def test_explain_pod_reports_a_label_without_an_injection_with_the_fix():
    assert (read("roce").missed_label, read("none").missed_label) == ("roce", "")
    text = render("roce")
    assert "label railwright.io/fabric 'roce', but not injected: the label was set after the pod's creation" in text
    assert "or the policy was in mode warn; set it in the pod template, then delete the pod" in text
    assert "did not opt in" in render("none")
