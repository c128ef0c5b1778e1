"""What the pod-security level of a namespace lets a fabric do (Kubernetes' Pod Security Standards).

Owns the two levels that forbid something and ruling 16's question whether a forbidden thing is the only way to the
devices. Where the level is not known nothing is held back: the API server judges the pod after us anyway.
"""

from collections.abc import Mapping

from railwright.fabric import names
from railwright.fabric.injection import aim as aims
from railwright.fabric.injection import facts

_PRIVILEGED, _RESTRICTED = "privileged", "restricted"
# Capabilities a container may add, by level (pod-security-admission policy/check_capabilities_*.go).
_BASELINE = frozenset(
    {
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE"),
        *("SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    }
)
_ALLOWED: Mapping[str, frozenset[str]] = {"baseline": _BASELINE, _RESTRICTED: frozenset({"NET_BIND_SERVICE"})}

ELSEWHERE = "if NCCL fails without, run the pod in a privileged namespace"


def level(known: facts.Facts) -> str | None:
    """The enforced level where it forbids something: baseline or restricted; else None.

    A word that is no level counts as restricted, as it does for the API server (pod-security-admission ParseLevel).
    """
    written = (known.namespace_labels or {}).get(names.POD_SECURITY_ENFORCE, _PRIVILEGED)
    if written == _PRIVILEGED:
        return None
    return written if written in _ALLOWED else _RESTRICTED


def allows(enforced: str | None, capability: str) -> bool:
    """True when a container may add the capability under that level."""
    return enforced is None or capability in _ALLOWED[enforced]


def only_way(aim: aims.Aim) -> bool:
    """True when some rail has no resource: then no device plugin brings its device into the container."""
    return any(chosen.resource is None for chosen in aim.rails)
