"""Decides whether a pod opted in, and to which fabric, by the label of the pod or of its namespace.

Also finds pods that opted in and were not injected. The rules are in docs/interface.md 1.1 to 1.4.
"""

from collections.abc import Collection, Mapping

from railwright.fabric import names, text, views
from railwright.fabric.injection import accelerators, facts
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason

UNKNOWN_FABRIC = "unknown-fabric"  # reason of a Refusal
_NAME_LABEL = "kubernetes.io/metadata.name"  # set by the API server on every namespace, so known without a cache


def find_fabric(pod: views.Pod, document: policies.PolicyDocument, cluster: facts.ClusterFacts) -> str | None:
    """Return the name of the fabric the pod opted in to, or None if it did not. Raises RefusedError."""
    label = find_label(pod, cluster.namespace_labels, document.accelerators)
    if label is None:
        return None
    name = document.resolve_fabric_name(label)
    if name not in document.fabrics:
        raise _build_label_refusal(label, name, pod, document, cluster.namespace)
    if document.fabrics[name].namespaces:
        _check_namespace(name, document.fabrics[name], cluster)
    return name


def awaits_namespace(pod: views.Pod, cluster: facts.ClusterFacts, resources: Collection[str] | None = None) -> bool:
    """True if only the namespace's label can opt the pod in, and the cache does not have the namespace yet.

    The pod must wait: if it were admitted unchanged, and the namespace opts in, it would train over TCP. `resources` as
    for `find_label`.
    """
    is_unknown = cluster.namespace_labels is None and cluster.watched and names.FABRIC not in pod.metadata.labels
    return is_unknown and _is_accelerated(pod, resources)


def find_label(
    pod: views.Pod, namespace_labels: Mapping[str, str] | None, resources: Collection[str] | None = None
) -> str | None:
    """Return the fabric label that opts a pod in: its own, else its namespace's, else None.

    `resources` are the policy's accelerators. Without a policy (None) any extended resource may be an accelerator.
    """
    label, of_namespace = pod.metadata.labels.get(names.FABRIC), (namespace_labels or {}).get(names.FABRIC)
    if label is None and of_namespace is not None and _is_accelerated(pod, resources):
        label = of_namespace  # it covers only pods with an accelerator
    return None if label == names.FABRIC_NONE else label


def explain_unaccelerated(pod: views.Pod, cluster: facts.ClusterFacts, resources: Collection[str] | None = None) -> str:
    """Return why the label of the pod's namespace does not opt the pod in: it requests no accelerator.

    Return "" for a pod with a label of its own, and if the namespace does not opt in. `resources` as for `find_label`.
    """
    label = (cluster.namespace_labels or {}).get(names.FABRIC, names.FABRIC_NONE)
    if label == names.FABRIC_NONE or names.FABRIC in pod.metadata.labels or _is_accelerated(pod, resources):
        return ""
    opted_in = f"namespace {cluster.namespace} opts in with label {names.FABRIC} {text.quote(label)}"
    listed = f" of the policy ({text.join_fitting(resources)})" if resources else ""
    requested = sorted(accelerators.list_requested_by_containers(pod.spec.containers))
    fix = ""
    if requested:
        fix = f"; if {text.join_fitting(requested)} is an accelerator, let the operator add it to `accelerators`"
    return f"{opted_in}, but no container requests an accelerator{listed}{fix}"


def _is_accelerated(pod: views.Pod, resources: Collection[str] | None) -> bool:
    requested = accelerators.list_requested_by_containers(pod.spec.containers)
    return bool(requested) and (resources is None or accelerators.has_accelerator(requested, resources))


def _build_label_refusal(
    label: str, name: str, pod: views.Pod, document: policies.PolicyDocument, namespace: str
) -> reason.RefusedError:
    """Return the refusal of a label that names no fabric of the policy."""
    source = f"label {names.FABRIC}"
    if names.FABRIC not in pod.metadata.labels:
        source = f"{source} of namespace {namespace}"
    if label and not name:
        problem = f"{text.quote(label)} needs the policy's defaultFabric, which is not set"
        return reason.RefusedError(UNKNOWN_FABRIC, f"{source}: {problem}; name a fabric: {', '.join(document.fabrics)}")
    problem = f"{text.quote(name)} is not a fabric of the policy" if name else "is empty"
    default = [names.FABRIC_DEFAULT] if document.default_fabric else []
    allowed = ", ".join([*document.fabrics, *default, names.FABRIC_NONE])
    return reason.RefusedError(UNKNOWN_FABRIC, f"{source} {problem}; allowed are {allowed}")


def _check_namespace(name: str, fabric: policies.Fabric, cluster: facts.ClusterFacts) -> None:
    """Raise RefusedError if the pod's namespace lacks a label that the fabric requires.

    Without a cluster the labels of the namespace count as matching, so that a policy can be tried on a file.
    """
    if cluster.namespace_labels is None and fabric.namespaces.keys() != {_NAME_LABEL}:
        if not cluster.watched:
            return
        raise reason.RefusedError(
            "namespace-unknown",
            f"fabric {name} is limited to certain namespaces, and the labels of namespace {cluster.namespace} "
            "are not known yet; try again",
        )
    if not fabric.allows_namespace({_NAME_LABEL: cluster.namespace, **(cluster.namespace_labels or {})}):
        raise reason.RefusedError(
            "namespace",
            f"fabric {name} may not be used in namespace {cluster.namespace}: its labels do not match the policy's "
            f"fabrics.{name}.namespaces; use another fabric or ask for the namespace to be labelled",
        )


# --- pods that opted in and were not injected: they are likely to train over TCP -----------------------

# The metric, its alert and `railwright check` use this rule. manifests/base/admission-policy.yaml states it in CEL for
# the API server. tests/support/missed_pods.py has the cases that test all of them.

ALWAYS_EXCLUDED = frozenset({"kube-system", names.NAMESPACE})  # railwright's webhook configurations exclude these
MIRROR = "kubernetes.io/config.mirror"  # on kubelet's copy of a static pod: kubelet runs the file, not the copy
FULL = 48_000
"""Number of characters in annotations above which a record may not fit.

The API server allows 256 KiB, and a character takes at most four bytes, so every record fits below this number.
Characters are counted because CEL counts characters.
"""


def find_label_of_uninjected_pod(
    pod: views.Pod,
    namespace_labels: Mapping[str, str] | None,
    resources: Collection[str],
    excluded: Collection[str] = ALWAYS_EXCLUDED,
) -> str | None:
    """Return the fabric label of a pod that opted in and was not injected; None for every other pod.

    `resources` are the policy's accelerators. `excluded` are the namespaces that the webhook is not called for.
    """
    is_live = not pod.status.has_ended and pod.metadata.deletion_timestamp is None
    return find_label(pod, namespace_labels, resources) if is_live and is_uninjected(pod, excluded) else None


def is_uninjected(pod: views.Pod, excluded: Collection[str] = ALWAYS_EXCLUDED) -> bool:
    """True for a pod that admission covers and has not injected, whether it is live or has finished.

    A pod that mode `warn` left unchanged counts too.
    """
    annotations = pod.metadata.annotations
    if not {MIRROR, names.INJECTION}.isdisjoint(annotations) or pod.metadata.namespace in excluded:
        return False
    return sum(len(key) + len(value) for key, value in annotations.items()) <= FULL
