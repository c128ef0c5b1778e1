"""The facts about the cluster that the admission of one pod reads. They are immutable and come from the caches."""

from collections.abc import Collection, Mapping

import msgspec

from railwright.fabric import names
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode


class ClusterFacts(msgspec.Struct, frozen=True):
    """The state of the cluster that one admission needs.

    `None` means "not known": there is no cache, or the cache has no such object yet. An empty value means "none exist".
    """

    namespace: str  # of the request: the pod's own may be empty at admission
    namespace_labels: Mapping[str, str] | None = None
    networks: Mapping[tuple[str, str], str | None] | None = None  # (namespace, name) -> resourceName annotation
    offered: Collection[str] | None = None  # resources that are allocatable on some node
    # devices that a node has by resource, healthy or not: once for all nodes that have the same
    node_devices: Collection[Mapping[str, int]] | None = None
    # (namespace, name) of ResourceClaimTemplates -> DeviceClasses of its requests; None if railwright wrote it
    claim_templates: Mapping[tuple[str, str], frozenset[str] | None] | None = None
    without_templates: bool = False  # the webhook has no right to read and create ResourceClaimTemplates
    version: int | None = None  # of the three above together; None if they have no version
    # True if a template of the pod's workload requests an accelerator. Known for templates only, not for pods.
    job_accelerated: bool | None = None
    file_keys: bool = False  # the API server knows `fileKeyRef` of variables
    offered_by_old: frozenset[str] = frozenset()  # resources that nodes name whose kubelet does not
    image: str = names.IMAGE  # of the init container
    watched: bool = False  # namespaces are watched, so labels that are None belong to a namespace not observed yet


# --- the pod-security level of the namespace (docs/interface.md 3.4) ------------------------------------------
# If the level is unknown, everything is allowed here: the API server checks the pod after the webhook.

_PRIVILEGED, _RESTRICTED = "privileged", "restricted"
# Capabilities a container may add, by level (pod-security-admission policy/check_capabilities_*.go).
_BASELINE = frozenset(
    {
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
        *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    }
)
_ALLOWED: Mapping[str, frozenset[str]] = {"baseline": _BASELINE, _RESTRICTED: frozenset({"NET_BIND_SERVICE"})}


def find_security_level(cluster: ClusterFacts) -> str | None:
    """Return the enforced level, baseline or restricted, or None if it forbids nothing.

    An invalid level counts as restricted, as it does for the API server (pod-security-admission ParseLevel).
    """
    label = (cluster.namespace_labels or {}).get(names.POD_SECURITY_ENFORCE, _PRIVILEGED)
    if label == _PRIVILEGED:
        return None
    return label if label in _ALLOWED else _RESTRICTED


def allows_capability(enforced: str | None, capability: str) -> bool:
    """True if a container may add the capability under the level."""
    return enforced is None or capability in _ALLOWED[enforced]


def explain_forbidden(cluster: ClusterFacts, level: str | None, setting: str) -> reason.Reason:
    """Return the reason for a setting that is left out, because the pod-security level of the namespace forbids it."""
    return reason.Reason(
        AdmissionCode.POD_SECURITY_FORBIDS,
        f"{format_forbidden(cluster, level or _PRIVILEGED, setting)}: it is left out",
        fix="if NCCL fails without it, run the pod in a privileged namespace",
    )


def format_forbidden(cluster: ClusterFacts, level: str, setting: str) -> str:
    """Return the start of a message: the namespace, its pod-security level, and the setting that the level forbids."""
    return f"namespace {cluster.namespace} enforces pod-security level {level}, which forbids {setting}"
