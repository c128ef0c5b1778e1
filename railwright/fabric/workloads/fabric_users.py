"""Finds pods and namespaces that use fabrics which a new policy removes or renames.

Running pods are not affected. Recreated pods are rejected, because their label names no fabric.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from railwright.fabric import names, text, views
from railwright.fabric.policy import model
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode
from railwright.fabric.workloads import membership

_MAX_NAMED = 4  # namespaces in a message


class LabelledPods(NamedTuple):
    """Pods with labels of fabrics. `is_complete`: no pod with such a label is missing."""

    pods: Sequence[views.Pod]
    is_complete: bool


class Users(NamedTuple):
    """The pods with labels of fabrics (None if unknown), and the labels of each namespace by its name."""

    labelled: LabelledPods | None
    namespaces: Mapping[str, Mapping[str, str]]


def list_removed_labels(before: model.PolicyDocument, after: model.PolicyDocument) -> Sequence[str]:
    """Return the label values that named a fabric in the policy `before` and name none in the policy `after`."""
    lost = [name for name in before.fabrics if name not in after.fabrics]
    return [*lost, *([names.FABRIC_DEFAULT] if before.default_fabric and not after.default_fabric else [])]


def explain_uses(lost: Sequence[str], users: Users) -> Sequence[reason.Reason]:
    """Return a warning for each removed label that pods or namespaces have, or may have."""
    return [found for label in lost if (found := _explain_label_use(label, users)) is not None]


def _explain_label_use(label: str, users: Users) -> reason.Reason | None:
    path = "defaultFabric is" if label == names.FABRIC_DEFAULT else f"fabrics.{label} is"
    namespaces = [name for name, labels in users.namespaces.items() if labels.get(names.FABRIC) == label]
    opted_in = f"namespace {text.join_first(namespaces, _MAX_NAMED)} opts in with it" if namespaces else ""
    if users.labelled is None:
        counted = "how many pods use it is not known"
    else:
        pods = [pod for pod in users.labelled.pods if pod.metadata.labels.get(names.FABRIC) == label]
        if not pods and not namespaces:
            return None
        counted = _describe_users(pods, is_complete=users.labelled.is_complete) if pods else ""
    users_of_label = " and ".join(filter(None, (counted, opted_in)))
    return reason.Reason(
        AdmissionCode.FABRIC_IN_USE,
        f"{path} removed or renamed, but {users_of_label}: pods that are created again are rejected",
        fix="keep it until they have ended",
    )


def _describe_users(pods: Sequence[views.Pod], *, is_complete: bool) -> str:
    """Return as text how many pods and jobs have the label, with the namespaces that have the most pods."""
    jobs = len({membership.find_gang(pod) or pod.metadata.identity for pod in pods})
    by_namespace = Counter(pod.metadata.namespace for pod in pods).most_common()
    where = text.join_first((f"{namespace} {count}" for namespace, count in by_namespace), _MAX_NAMED)
    least = "" if is_complete else "at least "
    counted = f"{least}{text.format_count(len(pods), 'pod')} of {text.format_count(jobs, 'job')} ({where})"
    return f"{counted} {'has' if len(pods) == 1 else 'have'} its label"
