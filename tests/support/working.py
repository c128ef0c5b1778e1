"""Builds workloads of every registered kind, their reviews, and the pods that their controllers create."""

import copy
import json
from typing import Any

import admitting
import jsonpatch
import msgspec

from railwright.fabric.injection import template_plan, templates
from railwright.fabric.workloads import frameworks, registry
from webhook import reviews, workloads

ALL = {f"{kind.display_name}/{kind.version}": (kind, kind.version) for kind in registry.INJECTED_KINDS}


def get_kind(name: str) -> frameworks.WorkloadKind:
    """Return a row by its title."""
    (kind,) = [row for row in registry.INJECTED_KINDS if row.display_name == name]
    return kind


def build_workload(
    row: frameworks.WorkloadKind, template: Any, *, name: str = "worker", label: str | None = None, **spec: Any
) -> dict:
    """Return a workload with this template at every place of its kind; `name` is the task's, replica's or group's."""
    tree: dict = {"metadata": {"name": "w", "namespace": "prod"}}
    if label is not None:
        tree["metadata"]["labels"] = {"railwright.io/fabric": label}
    for site in row.templates:
        _merge(tree, _nest(site.path, site, template, name))
    tree.setdefault("spec", {}).update(spec)
    untied: dict = json.loads(json.dumps(tree))  # a copy would share the template between its places
    return untied


def build_template(*containers: dict, label: str | None = None, **more: Any) -> dict:
    """Return a pod template."""
    pod = admitting.pod(*containers, label=label, **more)
    pod["metadata"].pop("name")
    pod["metadata"].pop("namespace")
    return {"metadata": pod["metadata"], "spec": pod["spec"]}


def read(row: frameworks.WorkloadKind, tree: dict) -> templates.Workload:
    return templates.read_workload(row, tree)


def plan_templates(row: frameworks.WorkloadKind, tree: dict, by: Any, at: Any = None) -> list:
    """Return the plan of each template of a workload."""
    templates_read = read(row, tree).templates
    return [
        template_plan.plan_template(template, by, at or admitting.build_facts(), "W prod/w")
        for template in templates_read
    ]


def apply_patch(row: frameworks.WorkloadKind, tree: dict, by: Any, at: Any = None) -> dict:
    """Return the workload after admission, by a strict implementation of RFC 6902."""
    operations = [
        operation
        for planned_template in plan_templates(row, tree, by, at)
        for operation in workloads.build_template_operations(planned_template.template, planned_template.changes)
    ]
    result: dict = jsonpatch.apply_patch(copy.deepcopy(tree), json.loads(msgspec.json.encode(operations)))
    return result


def review(row: frameworks.WorkloadKind, tree: Any, version: str = "", **request: Any) -> bytes:
    """Return a review of this object as the API server sends it."""
    asked = {
        "uid": "u",
        "kind": {"group": row.group, "version": version or row.version, "kind": row.name},
        "operation": "CREATE",
        "namespace": "prod",
        "object": tree,
        **request,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}).encode()


def handle(body: bytes, by: Any, at: Any = None) -> reviews.Answer:
    """Return the webhook's answer to a review, without an event loop: it waits for nothing but its turn."""
    steps = workloads.answer_review(body, by, lambda namespace: at or admitting.build_facts(namespace))
    try:
        while True:
            steps.send(None)
    except StopIteration as end:
        return end.value


def get_response(body: bytes, by: Any) -> dict:
    """Return the response to a review."""
    response: dict = json.loads(handle(body, by).body)["response"]
    return response


def build_pod(template: templates.Template, tree: dict) -> dict:
    """Return the pod that the controller makes of a template, `tree` being the whole workload as it is stored."""
    written = template.origin.path.read_template(resolve_pointer(tree, template.pointer))
    metadata = copy.deepcopy(written.get("metadata") or {})
    metadata["generateName"] = "p-"
    metadata["labels"] = {**(metadata.get("labels") or {}), **template.origin.metadata.labels}
    spec = copy.deepcopy(written["spec"])
    for container in spec["containers"]:
        added = [{"name": name, "value": ""} for name in template.origin.metadata.env]
        if added:
            container["env"] = [*(container.get("env") or []), *added]
    return {"metadata": metadata, "spec": spec}


def resolve_pointer(tree: Any, pointer: str) -> Any:
    """Return the target of a JSON pointer without escapes."""
    for step in pointer.split("/")[1:]:
        tree = tree[int(step)] if isinstance(tree, list) else tree[step]
    return tree


def get_container(row: frameworks.WorkloadKind, tree: dict) -> dict:
    """Return the first container of a workload's first template, to be changed in place."""
    template = read(row, tree).templates[0]
    container: dict = template.origin.path.read_template(resolve_pointer(tree, template.pointer))["spec"]["containers"][
        0
    ]
    return container


def _nest(steps: tuple[str, ...], site: frameworks.TemplatePath, template: Any, name: str) -> Any:
    if not steps:
        if not site.pod_spec:
            return template
        parts = template if isinstance(template, dict) else {"spec": template}
        metadata, tree = parts.get("metadata"), parts.get("spec")
        for step in reversed(site.pod_spec):
            tree = {step: tree}
        return {**(metadata if isinstance(metadata, dict) else {}), **tree}
    step, rest = steps[0], steps[1:]
    if rest and rest[0] == frameworks.EACH:
        child = _nest(rest[1:], site, template, name)
        return {step: {name: child} if step.endswith("ReplicaSpecs") else [{site.name_field: name, **child}]}
    return {step: _nest(rest, site, template, name)}


def _merge(into: dict, more: dict) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value
