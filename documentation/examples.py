"""Shows files of the repository on pages, the real changes that admission makes to them, and its common messages.

The changes are those that `railwright explain` shows, the messages those of the webhook.
"""

import difflib
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import msgspec
import yaml

from documentation import markdown
from railwright.cli import object_files
from railwright.cli.clouds import comparison, profiles
from railwright.cli.explanation import previews, templates
from railwright.cluster import policies
from railwright.fabric import names, text
from railwright.fabric.policy import model
from railwright.fabric.workloads import frameworks

EXAMPLES = markdown.ROOT / "manifests" / "examples"
_POLICY = EXAMPLES / "360-roce" / "policy.yaml"
_POD = """
apiVersion: v1
kind: Pod
metadata:
  name: worker-0
  namespace: prod
  labels: {railwright.io/fabric: %s}
  annotations: {%s}
spec:
  containers:
  - name: pytorch
    image: torch
    env: [%s]
    resources: {limits: {nvidia.com/gpu: "8"}}
  hostNetwork: %s
"""
_CONTEXT = 4  # unchanged lines around a change


def include_file(path: str) -> str:
    """Return a file as a Markdown code block with its path as the title."""
    content = (markdown.ROOT / path).read_text(encoding="utf-8").rstrip()
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
    rows = [(_escape_cell(item.change), _escape_cell(item.reason)) for item in preview.changes]
    warnings = [f"- warning: {_escape_cell(item.line)}" for item in preview.warnings]
    table = [markdown.format_table(("change", "why"), rows), *(["", *warnings] if warnings else [])]
    return "\n".join([title, "", "```diff", _format_diff(preview), "```", "", *table])


def _format_name(preview: previews.AdmissionPreview) -> str:
    name = preview.template or preview.object
    return name if preview.pods is None else f"{name} ({text.format_count(preview.pods, 'pod')})"


def _escape_cell(value: str) -> str:
    return markdown.escape(value).replace("<", "&lt;")


def _format_diff(preview: previews.AdmissionPreview) -> str:
    before, after = _format_pod(preview.before), _format_pod(preview.after)
    lines = list(difflib.unified_diff(before, after, n=_CONTEXT, lineterm=""))[2:]
    return "\n".join("..." if line.startswith("@@") else line for line in lines)


def _format_pod(pod: previews.Tree) -> list[str]:
    """Return the pod as lines of YAML. The injection record is shortened to the fields that concern a reader."""
    annotations = dict(frameworks.get_mapping(pod, "metadata", "annotations"))
    record_text = annotations.pop(names.INJECTION, None)
    if record_text:
        record = {
            key: value for key, value in json.loads(record_text).items() if key in {"fabric", "role", "containers"}
        }
        annotations[names.INJECTION] = json.dumps(record)[:-1] + ", ...}"
    shown = {**pod, "metadata": {**pod["metadata"], **({"annotations": annotations} if annotations else {})}}
    return object_files.format_yaml_lines(shown)


# --- profiles of clouds ------------------------------------------------------------------------------------


def list_profiles() -> str:
    """Return a table of the profiles: what a label replaces, and what the profile does differently, with the reason."""
    columns = ("profile", "shape", "fabric", "lines", "topology", "the site installs", "differences", "not verified")
    return "\n".join(
        [
            markdown.format_table(columns, map(_format_profile, profiles.list_profiles())),
            "",
            "All profiles may differ from the vendor's pods in these:",
            "",
            *(f"- {_format_difference(row)}" for row in comparison.read_common_differences()),
        ]
    )


def _format_profile(profile: profiles.Profile) -> tuple[str, ...]:
    first, *others = profiles.list_shapes(profile)
    before, after = (comparison.count_lines(first, name) for name in ("vendor.yaml", "job.yaml"))
    differences = [*profile.differences, *(row for variant in profile.variants for row in variant.differences)]
    return (
        f"{profile.cloud}: [{profile.name}](../../railwright/cli/clouds/profiles/{profile.name})",
        "<br>".join([f"{first.title}; from {profile.source}", *(shape.title for shape in others)]),
        profile.fabric,
        f"{before} -> {after}",
        profile.topology,
        profile.installs,
        "<br>".join(map(_format_difference, differences)) or "none beside the common ones",
        profile.unverified,
    )


def _format_difference(difference: profiles.Difference) -> str:
    return f"`{difference.at}`: {difference.reason}"


_REVIEWED = markdown.ROOT / "tests" / "data" / "published" / "index.yaml"


def list_reviewed() -> str:
    """Return a table of what lint finds in vendors' manifests, and lists of what was read and what was not."""
    repositories = yaml.safe_load(_REVIEWED.read_text(encoding="utf-8"))
    rows = [_format_reviewed(row, finding) for row in repositories for finding in row["findings"]]
    table = markdown.format_table(("repository", "rule", "in", "why it is true"), rows)
    counts = [f"{row['manifests']} of {row['repository']} at {row['commit'][:7]}" for row in repositories]
    total = sum(row["manifests"] for row in repositories)
    left_out = [f"- {row['repository']}, {text}." for row in repositories for text in row.get("not_rendered", ())]
    read = f"{total} manifests were read: {', '.join(counts)}."
    return "\n\n".join([table, read, "Charts that were not rendered:", "\n".join(left_out)])


def _format_reviewed(row: dict[str, Any], finding: dict[str, Any]) -> tuple[str, ...]:
    code, paths = finding["code"], finding["in"]
    name = f" `{finding['name']}`" if "name" in finding else ""
    more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    return (
        row["repository"],
        f"[{code}](../reference/lint.md#{code.lower()}){name}",
        f"`{paths[0]}`{more}",
        finding["why"],
    )


# --- common rejections and warnings ------------------------------------------------------------------------


class Case(msgspec.Struct, frozen=True):
    """A common mistake, and a fix in addition to the message."""

    title: str
    fix: str
    label: str = "roce"
    annotations: str = ""
    env: str = ""
    host_network: bool = False


CASES = (
    Case("The fabric's name is misspelt", "Use one of the names in the message.", label="rocee"),
    Case("The label has no value", "Set the name of a fabric, or `default`.", label='""'),
    Case(
        "More rails than the fabric has",
        "Remove the annotation: without it a pod gets all rails.",
        annotations='railwright.io/rails: "8"',
    ),
    Case(
        "A word that cannot be skipped",
        "Use `networks`, `devices`, `mounts`, `security`, `env` or `preflight`.",
        annotations="railwright.io/skip: gpu",
    ),
    Case(
        "A container that is not in the pod",
        "Name containers of `spec.containers`, or remove the annotation to select those with a GPU.",
        annotations="railwright.io/containers: trainer",
    ),
    Case(
        "A networks annotation that Multus would reject",
        "Correct the annotation, or remove it: railwright adds the rails' networks.",
        annotations="k8s.v1.cni.cncf.io/networks: prod/a/b",
    ),
    Case(
        "The pod uses the host's network",
        "This is a warning: the pod runs. Remove `hostNetwork: true` to give the pod its own interfaces.",
        host_network=True,
    ),
    Case(
        "The pod sets a variable that railwright would derive",
        "The pod's value is used. Remove it if it is left over from a hand-written job.",
        env='{name: NCCL_IB_HCA, value: "mlx5_9"}',
    ),
)


def format_common() -> str:
    """Return each case with its fix and message, in Markdown."""
    return "\n\n".join(map(_format_case, CASES))


def _format_case(case: Case) -> str:
    preview = preview_case(case)
    messages = [preview.message] if previews.is_rejected(preview) else [warning.line for warning in preview.warnings]
    messages += [f"kept: {container}: {', '.join(map(str, values))}" for container, values in preview.unchanged.items()]
    return f"**{case.title}.** {case.fix}\n\n```text\n{chr(10).join(messages)}\n```"


def preview_case(case: Case) -> previews.AdmissionPreview:
    """Return the webhook's answer to the pod of a case."""
    text = _POD % (case.label, case.annotations, case.env, str(case.host_network).lower())
    (tree,) = object_files.read_manifest(yaml.safe_dump(yaml.safe_load(text)), "pod")
    pods = templates.expand(tree, templates.DEFAULT_NAMESPACE) or []
    return previews.preview_admission(pods[0], read_policy(_POLICY), previews.load_caches(None))
