"""Admission, `explain` and lint read workloads of every registered kind in the same way."""

import admitting
import pytest
import working
import yaml

from railwright.cli import linted_manifests as linted
from railwright.cli.explanation import templates as explained
from railwright.fabric.workloads import frameworks, registry

FABRIC = "railwright.io/fabric"
SPECS = {"Job.batch.volcano.sh": {"plugins": {"mpi": ["-master", "Worker"], "ssh": []}}}


def workload(row: frameworks.WorkloadKind, version: str, *, label: str | None = "f") -> dict:
    template = working.build_template()
    tree = working.build_workload(row, template, name="Worker", label=label, **SPECS.get(row.display_name, {}))
    tree["spec"].get("leaderWorkerTemplate", {})["size"] = 2
    return {"apiVersion": f"{row.group}/{version}", "kind": row.name, **tree}


@pytest.mark.parametrize(("row", "version"), working.ALL.values(), ids=working.ALL)
def test_admission_lint_and_explain_read_the_same_templates_and_labels_of_every_kind(row, version):
    tree = workload(row, version)
    for job in tree["spec"].get("replicatedJobs", []):
        job["template"]["metadata"] = {"labels": {FABRIC: "g"}}
    labels = [template.label for template in working.read(row, tree).templates]
    assert set(labels) == ({"g"} if row.name == "JobSet" else {"f"})
    linted_templates = linted.read_templates(tree)
    assert ["/" + "/".join(map(str, template.path)) for template in linted_templates] == [
        template.pointer for template in working.read(row, tree).templates
    ]
    assert [template.pod.metadata.labels[FABRIC] for template in linted_templates] == labels
    pods = [expanded.pod for expanded in explained.list_templates(tree, "prod")]
    assert [pod["metadata"]["labels"][FABRIC] for pod in pods] == labels
    for template, pod in zip(working.read(row, tree).templates, pods, strict=True):
        assert template.origin.metadata.labels.items() <= pod["metadata"]["labels"].items()
        env = [entry["name"] for entry in pod["spec"]["containers"][0].get("env", [])]
        assert env == list(template.origin.metadata.env)


def webhooks() -> dict[str, dict]:
    documents = yaml.safe_load_all((admitting.ROOT / "manifests" / "base" / "admission.yaml").read_text())
    configurations = [document for document in documents if document["kind"] == "MutatingWebhookConfiguration"]
    return {hook["name"]: hook for configuration in configurations for hook in configuration["webhooks"]}


@pytest.mark.parametrize("name", ["workloads", "namespaced-workloads"])
def test_the_manifests_of_railwright_name_exactly_the_kinds_in_the_registry(name):
    hook = webhooks()[f"{name}.railwright.io"]
    rules = hook["rules"]
    reviewed = {
        (group, version, resource)
        for rule in rules
        for group in rule["apiGroups"]
        for version in rule["apiVersions"]
        for resource in rule["resources"]
    }
    assert reviewed == {(row.group, row.version, row.plural) for row in registry.INJECTED_KINDS}
    assert {tuple(rule["operations"]) for rule in rules} == {("CREATE", "UPDATE")}
