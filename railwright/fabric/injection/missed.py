"""Finds pods that opted in and were not injected. They are likely to train over TCP.

The metric, its alert and `railwright check` use this rule. manifests/base/admission-policy.yaml states it in CEL for
the API server. tests/support/missed_pods.py has the cases that test all of them.
"""

from collections.abc import Collection, Mapping

from railwright.fabric import intent, names, views
from railwright.fabric.injection import accelerators
from railwright.fabric.policy import model

ALWAYS_EXCLUDED = frozenset({"kube-system", names.NAMESPACE})  # railwright's webhook configurations exclude these
MIRROR = "kubernetes.io/config.mirror"  # on kubelet's copy of a static pod: kubelet runs the file, not the copy
FULL = 48_000
"""Number of characters in annotations above which a record may not fit.

The API server allows 256 KiB, and a character takes at most four bytes, so every record fits below this number.
Characters are counted because CEL counts characters.
"""


def find_label(
    pod: views.Pod,
    namespace_labels: Mapping[str, str] | None,
    resources: Collection[str],
    excluded: Collection[str] = ALWAYS_EXCLUDED,
) -> str | None:
    """Find the fabric label by which a pod opted in without being injected. Return None for every other pod.

    `resources` are the policy's accelerators. `excluded` are the namespaces that the webhook is not called for.
    """
    if not lacks_injection(pod, excluded):
        return None
    requested = accelerators.list_all_requested(pod.spec.containers)
    return resolve_label(pod.metadata.labels.get(names.FABRIC), requested, namespace_labels, resources)


def is_covered(pod: views.Pod, excluded: Collection[str] = ALWAYS_EXCLUDED) -> bool:
    """True if the webhook is called for the pod: it is no mirror pod, and its namespace is not excluded."""
    return MIRROR not in pod.metadata.annotations and pod.metadata.namespace not in excluded


def lacks_injection(pod: views.Pod, excluded: Collection[str]) -> bool:
    """True for a live pod that admission covers and has not injected. If it opted in, it was missed."""
    is_live = not pod.status.has_ended and pod.metadata.deletion_timestamp is None
    return is_live and is_uninjected(pod, excluded)


def is_uninjected(pod: views.Pod, excluded: Collection[str] = ALWAYS_EXCLUDED) -> bool:
    """True for a pod that admission covers and has not injected, whether it is live or has finished.

    A pod that audit mode left without a change counts too: it is missed once its fabric is enforced.
    """
    if not is_covered(pod, excluded):
        return False
    annotations = pod.metadata.annotations
    if names.INJECTION in annotations:
        return intent.read_record(pod).has_unmade_changes
    return sum(len(key) + len(value) for key, value in annotations.items()) <= FULL


def resolve_label(
    pod_label: str | None,
    requested: Collection[str],
    namespace_labels: Mapping[str, str] | None,
    resources: Collection[str] | None,
) -> str | None:
    """Return the fabric label that opts a pod in: its own, otherwise its namespace's, or None.

    `pod_label` is the pod's label, `requested` what its app containers request (`accelerators.list_all_requested`).
    Without a policy (`resources` is None) any extended resource may be an accelerator.
    """

    def is_accelerated() -> bool:
        return bool(requested) and (resources is None or accelerators.has_accelerator(requested, resources))

    return intent.find_label(pod_label, namespace_labels, is_accelerated)


def is_in_audit(label: str, document: model.FabricPolicy | None) -> bool:
    """True if a label names a fabric in audit mode, whose pods are not injected by intent."""
    return document is not None and intent.is_in_audit(document, intent.resolve_default(label, document))
