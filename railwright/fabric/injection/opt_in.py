"""Whether a pod opted in, and to which fabric (rulings 1, 2).

Owns the label on the pod and on its namespace. Refuses to look at what the pod would get.
"""

from collections.abc import Mapping

from railwright.fabric import names, views
from railwright.fabric.injection import accelerators, facts, model
from railwright.fabric.policy import model as policies
from railwright.fabric.policy import selectors

UNKNOWN_FABRIC = "unknown-fabric"  # the reason of a refusal: the label names no fabric
_NAME_LABEL = "kubernetes.io/metadata.name"  # set by the API server on every namespace, so known before any cache
_WINDOWS = "windows"
_OS_LABELS = ("kubernetes.io/os", "beta.kubernetes.io/os")  # of nodes; kubelet still sets the older one too


def fabric_of(pod: views.Pod, document: policies.FabricPolicy, known: facts.Facts) -> str | None:
    """The name of the fabric the pod opted in to, None where it did not. Raises RefusedError."""
    label = pod.metadata.labels.get(names.FABRIC)
    where = f"label {names.FABRIC}"
    if label is None:
        label = (known.namespace_labels or {}).get(names.FABRIC)
        where = f"label {names.FABRIC} of namespace {known.namespace}"
        if label is None or not accelerators.accelerated(pod, document.accelerators):
            return None
    if label == names.FABRIC_NONE:
        return None
    name = _resolved(label, where, document)
    _needs_linux(name, pod)
    _may_use(name, document.fabrics[name], known)
    return name


def undecided(pod: views.Pod, document: policies.FabricPolicy, known: facts.Facts) -> bool:
    """True where only the namespace's label decides whether the pod opted in, and the watch has not shown it yet.

    The API server may have seen that label, and called us for it: letting the pod pass could let it crawl.
    """
    if not _unseen(pod, known):
        return False
    return any(accelerators.names(each, name) for each in pod.spec.containers for name in document.accelerators)


def may_be_undecided(pod: views.Pod, known: facts.Facts) -> bool:
    """The same without a policy: any extended resource may be an accelerator."""
    return _unseen(pod, known) and any(map(accelerators.extended, pod.spec.containers))


def _unseen(pod: views.Pod, known: facts.Facts) -> bool:
    """True where the pod's namespace decides and its labels are yet to come."""
    return known.namespace_labels is None and known.watched and names.FABRIC not in pod.metadata.labels


def may_opt_in(pod: views.Pod, namespace_labels: Mapping[str, str] | None) -> bool:
    """True where a label may ask for a fabric. Needs no policy: any extended resource may be an accelerator."""
    label = pod.metadata.labels.get(names.FABRIC)
    if label is None and any(map(accelerators.extended, pod.spec.containers)):
        label = (namespace_labels or {}).get(names.FABRIC)
    return label is not None and label != names.FABRIC_NONE


def _resolved(label: str, where: str, document: policies.FabricPolicy) -> str:
    allowed = model.listed([*document.fabrics, names.FABRIC_DEFAULT, names.FABRIC_NONE])
    if label == names.FABRIC_DEFAULT and names.FABRIC_DEFAULT not in document.fabrics:
        if document.default_fabric is None:
            raise model.RefusedError(
                UNKNOWN_FABRIC,
                f"{where}: the policy has no defaultFabric; name a fabric: {model.listed(document.fabrics)}",
            )
        label = document.default_fabric
    if label not in document.fabrics:
        what = "is empty" if not label else f"{model.quoted(label)} is no fabric of the policy"
        raise model.RefusedError(UNKNOWN_FABRIC, f"{where} {what}; allowed are {allowed}")
    return label


def _needs_linux(name: str, pod: views.Pod) -> None:
    """Raise RefusedError for a Windows pod: the API server would name a field that its author never wrote."""
    where = _windows(pod.spec)
    if where is not None:
        raise model.RefusedError(
            "windows",
            f"{where} is {_WINDOWS}: fabric {name} needs Linux (its devices, mounts and capabilities are Linux's); "
            f"set label {names.FABRIC}: {names.FABRIC_NONE} on the pod",
        )


def _windows(spec: views.PodSpec) -> str | None:
    """The field that keeps the pod off every node that runs Linux, None where there is none."""
    if spec.os is not None and spec.os.name == _WINDOWS:
        return "spec.os.name"
    for label in _OS_LABELS:
        if spec.node_selector and spec.node_selector.get(label) == _WINDOWS:
            return f"spec.nodeSelector {label}"
        if spec.affinity is not None and _all_terms_need_windows(spec.affinity, label):
            return f"spec.affinity {label}"
    return None


def _all_terms_need_windows(affinity: views.Affinity, label: str) -> bool:
    required = affinity.node_affinity.required if affinity.node_affinity else None
    terms = (required.node_selector_terms if required else None) or ()
    return bool(terms) and all(
        any(
            each.key == label and each.operator == "In" and set(each.values or ()) == {_WINDOWS}
            for each in term.match_expressions or ()
        )
        for term in terms
    )


def _may_use(name: str, fabric: policies.Fabric, known: facts.Facts) -> None:
    selector = fabric.namespaces
    read = {*selector.match_labels, *(expression.key for expression in selector.match_expressions)}
    if not read:
        return
    if known.namespace_labels is None and read != {_NAME_LABEL}:
        raise model.RefusedError(
            "namespace-unknown",
            f"fabric {name} is limited to some namespaces and the labels of namespace {known.namespace} "
            "are not known yet; try again",
        )
    if not selectors.matches(selector, {_NAME_LABEL: known.namespace, **(known.namespace_labels or {})}):
        raise model.RefusedError(
            "namespace",
            f"fabric {name} may not be used in namespace {known.namespace}: its labels do not match the policy's "
            f"fabrics.{name}.namespaces; use another fabric or ask for the namespace to be labelled",
        )
