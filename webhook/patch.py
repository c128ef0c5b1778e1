"""Converts changes of a pod into RFC 6902 operations, without comparing documents. Equal changes give equal bytes."""

from collections.abc import Mapping, Sequence

from railwright.fabric import views
from railwright.fabric.injection import pod_changes, templates
from railwright.fabric.workloads import frameworks


def build_operations(pod: views.Pod, changes: Sequence[pod_changes.Change]) -> list[pod_changes.Operation]:
    """Return the operations of the changes, in their order."""
    patch = pod_changes.PodPatch(pod)
    for change in changes:
        change.patch(patch)
    return patch.operations


def build_template_operations(
    template: templates.Template, changes: Sequence[pod_changes.Change]
) -> list[pod_changes.Operation]:
    """Return the operations of changes of a template, with pointers into its workload."""
    operations = build_operations(template.pod, changes)
    has_metadata = any(operation["path"].startswith("/metadata/") for operation in operations)
    if has_metadata and template.written.metadata is None:
        operations.insert(0, {"op": "add", "path": "/metadata", "value": {}})
    return [
        {**operation, "path": f"{template.pointer}{template.path.locate(operation['path'])}"}
        for operation in operations
    ]


def group_by_change(
    pod: views.Pod, changes: Sequence[pod_changes.Change]
) -> list[tuple[pod_changes.Change, list[pod_changes.Operation]]]:
    """Return each change with its operations. Concatenated, the operations are the patch."""
    patch = pod_changes.PodPatch(pod)
    grouped = []
    for change in changes:
        before = len(patch.operations)
        change.patch(patch)
        grouped.append((change, patch.operations[before:]))
    return grouped


def build_annotations(annotations: Mapping[str, str] | None, added: Mapping[str, str]) -> list[pod_changes.Operation]:
    """Return the operations that add annotations. `annotations` are those of the object, None if it has no map."""
    patch = pod_changes.PodPatch(views.Pod())
    for key, value in added.items():
        patch.add(f"{patch.ensure('/metadata/annotations', annotations, {})}/{frameworks.escape(key)}", value)
    return patch.operations
