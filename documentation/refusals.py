"""Lists the most common rejections and warnings of admission, with the webhook's real messages."""

import msgspec
import yaml

from documentation import examples
from railwright.cli import object_files
from railwright.cli.explanation import previews, templates

_POLICY = examples.EXAMPLES / "360-roce" / "policy.yaml"
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
    return previews.preview_admission(pods[0], examples.read_policy(_POLICY), previews.load_caches(None))
