"""What people meet most often when admission refuses a pod or warns of it, in the webhook's own words.

Owns the cases. The sentences are the webhook's, asked when the page is made.
"""

import msgspec
import yaml

from railwright.cli.explanation import account, manifests, templates
from railwright.documentation import examples

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
    """A slip, and what to do about it beyond what the sentence says."""

    title: str
    fix: str
    label: str = "roce"
    annotations: str = ""
    env: str = ""
    host_network: bool = False


CASES = (
    Case("The fabric's name is misspelt", "Take one of the names in the message.", label="rocee"),
    Case("The label has no value", "Write the fabric, or `default`.", label='""'),
    Case(
        "More rails than the fabric has",
        "Remove the annotation: without it a pod gets all rails.",
        annotations='railwright.io/rails: "8"',
    ),
    Case(
        "A word that cannot be skipped",
        "`networks`, `devices`, `mounts`, `security`, `env` and `preflight` can.",
        annotations="railwright.io/skip: gpu",
    ),
    Case(
        "A container that is not in the pod",
        "Name containers of `spec.containers`, or remove the annotation: those with a GPU are taken.",
        annotations="railwright.io/containers: trainer",
    ),
    Case(
        "Networks that Multus could not read",
        "Correct your annotation, or remove it: railwright adds the rails' networks.",
        annotations="k8s.v1.cni.cncf.io/networks: prod/a/b",
    ),
    Case(
        "The pod is on the host's network",
        "A warning: the pod runs. Remove `hostNetwork: true` to get interfaces of its own.",
        host_network=True,
    ),
    Case(
        "You set a variable that the fabric has a value for",
        "Yours stays. Remove it if it is left over from a hand-written job.",
        env='{name: NCCL_IB_HCA, value: "mlx5_9"}',
    ),
)


def common() -> str:
    """Markdown: each case, what is said of it, and the fix."""
    return "\n\n".join(_case(each) for each in CASES)


def _case(case: Case) -> str:
    given = answered(case)
    said = [given.message] if account.refused(given) else list(given.warnings)
    said += [f"kept: {who}: {', '.join(map(str, what))}" for who, what in given.kept.items()]
    return f"**{case.title}.** {case.fix}\n\n```text\n{chr(10).join(said)}\n```"


def answered(case: Case) -> account.Account:
    """What the webhook answers for the case's pod."""
    text = _POD % (case.label, case.annotations, case.env, str(case.host_network).lower())
    (tree,) = manifests.read(yaml.safe_dump(yaml.safe_load(text)), "pod")
    made = templates.of(tree, templates.DEFAULT_NAMESPACE) or []
    return account.give(made[0], examples.accepted(_POLICY), account.known(None))
