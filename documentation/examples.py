"""Formats examples for pages: cloud profiles, linted manifests, common messages of admission, an injected pod."""

import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import yaml

from documentation import markdown
from railwright.cli import formats, object_files
from railwright.cli.clouds import profiles
from railwright.cli.explanation import previews, templates
from railwright.fabric import names

_POLICY = markdown.ROOT / "manifests" / "examples" / "360-roce" / "policy.yaml"
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


def preview_admission(manifest: str, policy: pathlib.Path) -> previews.AdmissionPreview:
    """Return the webhook's answer to the first pod of a manifest, under the policy of a file."""
    tree, *_ = object_files.read_manifest(manifest, "manifest")
    pods = templates.list_templates(tree, templates.DEFAULT_NAMESPACE)
    return previews.preview_admission(pods[0], object_files.read_policy(str(policy)), previews.fill_caches({}))


# --- profiles of clouds ------------------------------------------------------------------------------------


def format_profiles() -> str:
    """Return a table of the cloud profiles, with the lengths of the vendor's job and of the same job with one label."""
    columns = ("profile", "shape", "network", "lines", "topology", "the site installs", "differences", "not verified")
    return "\n".join(
        [
            markdown.format_table(columns, map(_format_profile, profiles.list_profiles())),
            "",
            "The pods of every profile may differ from the vendor's in these fields:",
            "",
            *(f"- {row}" for row in _list_differences(_DIFFERENCES["common"])),
        ]
    )


_JOBS = markdown.ROOT / "tests" / "data" / "clouds"  # the vendors' jobs, those with one label, and the differences
_DIFFERENCES = yaml.safe_load((_JOBS / "differences.yaml").read_text(encoding="utf-8"))


def _format_profile(profile: profiles.Profile) -> tuple[str, ...]:
    first, *others = [shape.title for shape in profile.shapes]
    before, after = (_count_lines(_JOBS / profile.name / name) for name in ("vendor.yaml", "job.yaml"))
    comparison = _DIFFERENCES[profile.name]
    rows = [comparison, *comparison.get("variants", ())]
    differences = [text for row in rows for text in _list_differences(row.get("differences", ()))]
    return (
        f"{profile.cloud}: [{profile.name}](../railwright/cli/clouds/profiles/{profile.name})",
        "<br>".join([f"{first}; from {profile.source}", *others]),
        profile.network,
        f"[{before} -> {after}](../tests/data/clouds/{profile.name})",
        profile.topology,
        profile.installs,
        "<br>".join(differences) or "none beside the common ones",
        profile.unverified,
    )


def _count_lines(path: pathlib.Path) -> int:
    """Return the number of lines of a manifest after reformatting, so that the author's style does not count."""
    trees = object_files.read_manifest(path.read_text(encoding="utf-8"), path.name)
    return sum(len(formats.format_yaml_lines(tree)) for tree in trees)


def _list_differences(rows: Sequence[dict[str, str]]) -> list[str]:
    return [f"`{row['at']}`: {row['reason']}" for row in rows]


_REVIEWED = markdown.ROOT / "tests" / "data" / "lint" / "reviewed.yaml"


def summarize_reviewed_manifests() -> str:
    """Return a sentence: how many published manifests lint has read, how many have findings, and their repositories."""
    repositories = yaml.safe_load(_REVIEWED.read_text(encoding="utf-8"))
    read = sum(row["manifests"] for row in repositories)
    with_findings = {
        (row["repository"], path) for row in repositories for finding in row["findings"] for path in finding["in"]
    }
    names_of = ", ".join(f"{row['repository']} at {row['commit'][:7]}" for row in repositories if row["manifests"])
    return f"lint has findings in {len(with_findings)} of {read} published manifests. All that were read: {names_of}."


# --- common rejections and warnings ------------------------------------------------------------------------


class Mistake(msgspec.Struct, frozen=True):
    """A common mistake in a pod. `fix` stands before the message of admission."""

    title: str
    fix: str
    label: str = "roce"
    annotations: str = ""
    env: str = ""
    host_network: bool = False


MISTAKES = (
    Mistake("The fabric's name is misspelt", "Use one of the names in the message.", label="rocee"),
    Mistake("The label has no value", "Set the name of a fabric, or `default`.", label='""'),
    Mistake(
        "More rails in `railwright.io/rails` than the fabric has",
        "Remove the annotation: without it a pod gets all rails.",
        annotations='railwright.io/rails: "8"',
    ),
    Mistake(
        "An unknown word in `railwright.io/skip`",
        "Use `networks`, `devices`, `mounts`, `security`, `env` or `preflight`.",
        annotations="railwright.io/skip: gpu",
    ),
    Mistake(
        "An unknown container in `railwright.io/containers`",
        "Name containers of `spec.containers`, or remove the annotation to select those with a GPU.",
        annotations="railwright.io/containers: trainer",
    ),
    Mistake(
        "A networks annotation that Multus would reject",
        "Correct the annotation, or remove it: railwright adds the rails' networks.",
        annotations="k8s.v1.cni.cncf.io/networks: prod/a/b",
    ),
    Mistake(
        "The pod uses the host's network",
        "This is a warning: the pod runs. Remove `hostNetwork: true` to give the pod its own interfaces.",
        host_network=True,
    ),
    Mistake(
        "The pod sets a variable that railwright would derive",
        "The pod's value is used. Remove it if it is left over from a hand-written job.",
        env='{name: NCCL_IB_HCA, value: "mlx5_9"}',
    ),
)


def format_mistakes() -> str:
    """Return each mistake with its fix and the message of admission, in Markdown."""
    return "\n\n".join(map(_format_mistake, MISTAKES))


def _format_mistake(mistake: Mistake) -> str:
    preview = preview_mistake(mistake)
    messages = [preview.message] if preview.is_rejected else [warning.line for warning in preview.warnings]
    messages += [f"kept: {container}: {', '.join(map(str, values))}" for container, values in preview.kept.items()]
    return f"**{mistake.title}.** {mistake.fix}\n\n```text\n{chr(10).join(messages)}\n```"


def preview_mistake(mistake: Mistake) -> previews.AdmissionPreview:
    """Return the webhook's answer to a pod with the mistake."""
    text = _POD % (mistake.label, mistake.annotations, mistake.env, str(mistake.host_network).lower())
    return preview_admission(text, _POLICY)


# --- the effect of one label -------------------------------------------------------------------------------

_DEMO = markdown.ROOT / "railwright" / "cli" / "demo"
_NETWORKS = "k8s.v1.cni.cncf.io/networks"
_GPU = "nvidia.com/gpu"


def format_pod_diff() -> str:
    """Return the demo's pod before and after admission as a diff in Markdown, shortened to twelve lines."""
    preview = preview_admission((_DEMO / "job.yaml").read_text(encoding="utf-8"), _DEMO / "policy.yaml")
    return "\n".join(["```diff", *_list_diff_lines(preview.before, preview.after), "```"])


def _list_diff_lines(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    (written,), (container,) = before["spec"]["containers"], after["spec"]["containers"]
    metadata = after["metadata"]
    added = {name: 1 for name in container["resources"]["limits"] if name not in written["resources"]["limits"]}
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    rights = container["securityContext"]["capabilities"]["add"]
    networks = metadata["annotations"][_NETWORKS].split(",")
    variables = sorted((entry["name"] for entry in container["env"]), key=lambda name: not name.startswith("NCCL_IB_"))
    gpus = f"{_GPU}: {written['resources']['limits'][_GPU]}"
    yield "  metadata:"
    yield f"    labels: {{{names.FABRIC}: {metadata['labels'][names.FABRIC]}}}"
    yield f"+   annotations: {{{_NETWORKS}: {_shorten_list(networks)}}}"
    yield "  spec:"
    yield f"+   initContainers: [{', '.join(item['name'] for item in after['spec']['initContainers'])}]"
    yield "    containers:"
    yield f"    - name: {container['name']}"
    yield f"-     resources: {{limits: {{{gpus}}}}}"
    yield f"+     resources: {{limits: {{{gpus}, {_shorten_list([f'{name}: 1' for name in added])}}}}}"
    yield f"+     env: [{_shorten_list(variables, 3)}]"
    yield f"+     volumeMounts: [{', '.join(mounts)}]"
    yield f"+     securityContext: {{capabilities: {{add: [{', '.join(rights)}]}}}}"


def _shorten_list(values: Sequence[str], most: int = 1) -> str:
    """Return the first values as text, and the number of the others."""
    left = len(values) - most
    return ", ".join(values[:most]) + (f", and {left} more" if left > 0 else "")
