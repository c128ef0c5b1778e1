"""Shows files of the repository on pages, and the real changes that admission makes to them.

The changes are those that `railwright explain` shows.
"""

import difflib
import json
import pathlib
from collections.abc import Sequence

from railwright.cli import object_files
from railwright.cli.explanation import previews, templates
from railwright.cluster import policies
from railwright.fabric import names, text
from railwright.fabric.policy import model

ROOT = pathlib.Path(__file__).parents[1]
EXAMPLES = ROOT / "manifests" / "examples"
_CONTEXT = 4  # unchanged lines around a change


def include_file(path: str) -> str:
    """Return a file as a Markdown code block with its path as the title."""
    content = (ROOT / path).read_text(encoding="utf-8").rstrip()
    return f'```yaml title="{path}"\n{content}\n```'


def show_admission(site: str) -> str:
    """Return the changes to the pods of a site's job, in Markdown: a diff, and a table of changes with reasons."""
    by_changes: dict[tuple[previews.Change, ...], list[previews.AdmissionPreview]] = {}
    for item in preview_admission(EXAMPLES / site / "job.yaml", EXAMPLES / site / "policy.yaml"):
        by_changes.setdefault(tuple(item.changes), []).append(item)
    return "\n\n".join(_format_template(first, others) for first, *others in by_changes.values())


def preview_admission(job: pathlib.Path, policy: pathlib.Path) -> list[previews.AdmissionPreview]:
    """Return admission's answer for each pod template of a manifest."""
    loaded_policy = read_policy(policy)
    caches = previews.load_caches(None)
    trees = object_files.read_manifest(job.read_text(encoding="utf-8"), str(job))
    pod_templates = [item for tree in trees for item in templates.expand(tree, templates.DEFAULT_NAMESPACE) or ()]
    return [previews.preview_admission(item, loaded_policy, caches) for item in pod_templates]


def read_policy(path: pathlib.Path) -> model.Policy:
    """Return the policy in a file. Raises TypeError if it is invalid."""
    policy = policies.read(path.read_text(encoding="utf-8"))
    if isinstance(policy, policies.Rejected):
        raise TypeError(f"{path}: {policy.errors[0].path}: {policy.errors[0].message}")
    return policy


def _format_template(preview: previews.AdmissionPreview, others: Sequence[previews.AdmissionPreview]) -> str:
    """Return the changes to a template. `others` are the templates of the job that get the same changes."""
    title = f"**{_format_name(preview)}**: fabric `{preview.fabric}`, role {preview.role}."
    if others:
        title += f" The same for {', '.join(map(_format_name, others))}."
    rows = [f"| {_escape_cell(item.change)} | {_escape_cell(item.reason)} |" for item in preview.changes]
    warnings = [f"- warning: {_escape_cell(item.line)}" for item in preview.warnings]
    table = ["| change | why |", "|---|---|", *rows, *(["", *warnings] if warnings else [])]
    return "\n".join([title, "", "```diff", _format_diff(preview), "```", "", *table])


def _format_name(preview: previews.AdmissionPreview) -> str:
    name = preview.template or preview.object
    return name if preview.pods is None else f"{name} ({text.format_count(preview.pods, 'pod')})"


def _escape_cell(value: str) -> str:
    return value.replace("|", "\\|").replace("<", "&lt;")


def _format_diff(preview: previews.AdmissionPreview) -> str:
    before, after = _format_pod(preview.before), _format_pod(preview.after)
    lines = list(difflib.unified_diff(before, after, n=_CONTEXT, lineterm=""))[2:]
    return "\n".join("..." if line.startswith("@@") else line for line in lines)


def _format_pod(pod: previews.Tree) -> list[str]:
    """Return the pod as lines of YAML. The injection record is shortened to the fields that concern a reader."""
    annotations = dict(object_files.get_mapping(pod, "metadata", "annotations"))
    record_text = annotations.pop(names.INJECTION, None)
    if record_text:
        record = {
            key: value for key, value in json.loads(record_text).items() if key in {"fabric", "role", "containers"}
        }
        annotations[names.INJECTION] = json.dumps(record)[:-1] + ", ...}"
    shown = {**pod, "metadata": {**pod["metadata"], **({"annotations": annotations} if annotations else {})}}
    return object_files.format_yaml_lines(shown)
