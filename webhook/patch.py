"""Returns the JSON Patch operations that changes of a pod recorded, for the object that the API server sent."""

from collections.abc import Iterable, Sequence

from railwright.fabric.injection import drafts, templates


def build_operations(changes: Iterable[drafts.Change]) -> list[drafts.Operation]:
    """Return the operations of the changes, in their order."""
    return [operation for change in changes for operation in change.operations]


def build_template_operations(template: templates.Template, changes: Sequence[drafts.Change]) -> list[drafts.Operation]:
    """Return the operations of changes of a template, with pointers into its workload."""
    operations = build_operations(changes)
    has_metadata = any(operation["path"].startswith("/metadata/") for operation in operations)
    if has_metadata and template.written.metadata is None:
        operations.insert(0, {"op": "add", "path": "/metadata", "value": {}})
    return [
        {**operation, "path": f"{template.pointer}{template.path.locate(operation['path'])}"}
        for operation in operations
    ]
