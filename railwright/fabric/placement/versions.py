"""Finds gangs with pods that were admitted under different versions of the policy: their injected settings may differ.

Scores do not depend on it: placement uses the current policy for all pods.
"""

from collections.abc import Collection, Mapping, Sequence

from railwright.fabric.placement import fleet

_NAMED = 3  # pods listed for each version
_SHOWN = 19  # "sha256:" and 12 digits, enough to distinguish versions


def of(members: Collection[fleet.FleetPod]) -> Mapping[str, Sequence[fleet.FleetPod]]:
    """Group the pods of a gang by the digest of the policy they were admitted under, in rank order.

    Pods without injection are left out.
    """
    found: dict[str, list[fleet.FleetPod]] = {}
    for pod in sorted((pod for pod in members if pod.policy), key=lambda pod: pod.rank):
        found.setdefault(pod.policy, []).append(pod)
    return found


def sentence(found: Mapping[str, Sequence[fleet.FleetPod]], current: str) -> str:
    """Format the warning for a gang with several policy versions; "" if there is only one. `current` is in force."""
    if len(found) < 2:
        return ""
    told = "; ".join(f"{len(pods)} under {_shown(policy)} ({_listed(pods)})" for policy, pods in found.items())
    return (
        f"{sum(map(len, found.values()))} pods were admitted under {len(found)} versions of the policy: {told}; their "
        f"injected settings may differ: recreate the pods that are not under the current version, {_shown(current)}"
    )


def _shown(policy: str) -> str:
    return policy[:_SHOWN]


def _listed(pods: Sequence[fleet.FleetPod]) -> str:
    names = ", ".join(pod.key.partition("/")[2] for pod in pods[:_NAMED])
    return names + (", ..." if len(pods) > _NAMED else "")
