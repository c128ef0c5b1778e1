"""Checks the pod-security level of a namespace (Kubernetes' Pod Security Standards; docs/interface.md 3.4).

If the level is unknown, everything is allowed here: the API server checks the pod after the webhook.
"""

from collections.abc import Mapping

from railwright.fabric import names
from railwright.fabric.injection import facts
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import AdmissionCode

_PRIVILEGED, _RESTRICTED = "privileged", "restricted"
# Capabilities a container may add, by level (pod-security-admission policy/check_capabilities_*.go).
_BASELINE = frozenset(
    {
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
        *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    }
)
_ALLOWED: Mapping[str, frozenset[str]] = {"baseline": _BASELINE, _RESTRICTED: frozenset({"NET_BIND_SERVICE"})}


def find_level(cluster: facts.ClusterFacts) -> str | None:
    """Return the enforced level, baseline or restricted, or None if it forbids nothing.

    An invalid level counts as restricted, as it does for the API server (pod-security-admission ParseLevel).
    """
    label = (cluster.namespace_labels or {}).get(names.POD_SECURITY_ENFORCE, _PRIVILEGED)
    if label == _PRIVILEGED:
        return None
    return label if label in _ALLOWED else _RESTRICTED


def allows(enforced: str | None, capability: str) -> bool:
    """True if a container may add the capability under the level."""
    return enforced is None or capability in _ALLOWED[enforced]


def explain(cluster: facts.ClusterFacts, level: str | None, setting: str) -> reason.Reason:
    """Return the reason why a setting is left out under a level."""
    return reason.make(
        AdmissionCode.POD_SECURITY_FORBIDS, namespace=cluster.namespace, level=level or _PRIVILEGED, setting=setting
    )


def format_problem(cluster: facts.ClusterFacts, level: str, setting: str) -> str:
    """Return the start of a refusal of a setting that the fabric cannot work without."""
    return f"namespace {cluster.namespace} enforces pod-security level {level}, which forbids {setting}"
