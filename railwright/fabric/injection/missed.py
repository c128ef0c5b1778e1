"""Pods that opted in and were not injected: they are likely to train over TCP.

Owns the one rule that the metric, its alert and `railwright check` go by. manifests/base/admission-policy.yaml says the
same in CEL, for the API server; tests/support/missed_pods.py has the cases that hold all of them to it.
"""

from collections.abc import Collection, Mapping

from railwright.fabric import names, views
from railwright.fabric.injection import accelerators

ALWAYS_EXCLUDED = frozenset({"kube-system", names.NAMESPACE})  # no webhook configuration of ours covers these
MIRROR = "kubernetes.io/config.mirror"  # kubelet's copy of a static pod: it runs the file, whatever admission changes
FULL = 48_000
"""Characters of annotations beyond which a record may have found no room.

The API server allows 256 KiB, and a character takes at most four bytes: no record is left out below this number. CEL
counts characters, hence characters here too.
"""
_FINISHED = frozenset({"Succeeded", "Failed"})


def find_label(
    pod: views.Pod,
    namespace_labels: Mapping[str, str] | None,
    resources: Collection[str],
    excluded: Collection[str] = ALWAYS_EXCLUDED,
) -> str | None:
    """Find the fabric label by which a pod opted in without being injected; None for every other pod.

    `resources`: the policy's accelerators. `excluded`: the namespaces that the webhook is not called for.
    """
    if not lacks_injection(pod, excluded):
        return None
    return resolve_label(pod.metadata.labels.get(names.FABRIC), list_requested(pod), namespace_labels, resources)


def is_covered(pod: views.Pod, excluded: Collection[str] = ALWAYS_EXCLUDED) -> bool:
    """Return True if the webhook is called for such a pod: it is no mirror pod, and its namespace is not excluded."""
    return MIRROR not in pod.metadata.annotations and pod.metadata.namespace not in excluded


def lacks_injection(pod: views.Pod, excluded: Collection[str]) -> bool:
    """Return True for a live pod without a record that admission covers: if it opted in, it was missed."""
    annotations = pod.metadata.annotations
    return (
        names.INJECTION not in annotations
        and is_covered(pod, excluded)
        and pod.status.phase not in _FINISHED
        and pod.metadata.deletion_timestamp is None
        and sum(len(key) + len(value) for key, value in annotations.items()) <= FULL
    )


def resolve_label(
    own: str | None,
    asked: Collection[str],
    namespace_labels: Mapping[str, str] | None,
    resources: Collection[str] | None,
) -> str | None:
    """Return the value of the fabric label that opts a pod in: its own, else its namespace's; None where neither does.

    `own` is the pod's label, `asked` the extended resources it requests. Without a policy (`resources` is None) any
    extended resource may be an accelerator.
    """
    if own is None:
        if not asked or (resources is not None and set(resources).isdisjoint(asked)):
            return None  # the namespace's label is about pods with an accelerator only
        own = (namespace_labels or {}).get(names.FABRIC, names.FABRIC_NONE)
    return None if own == names.FABRIC_NONE else own


def list_requested(pod: views.Pod) -> frozenset[str]:
    """List the extended resources that a pod's app containers request."""
    return frozenset(name for each in pod.spec.containers for name in accelerators.asked(each))
