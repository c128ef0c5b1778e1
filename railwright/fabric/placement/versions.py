"""Pods of one gang that were admitted under different versions of the policy: what was injected may not go together.

Owns when a gang is mixed and the sentence that says so. Where its pods go does not depend on it: placement reads the
policy in force, for all of them the same.
"""

from collections.abc import Collection, Mapping, Sequence

from railwright.fabric.placement import fleet

_NAMED = 3  # pods of one version named in the sentence
_SHOWN = 19  # "sha256:" and 12 digits, enough to tell versions apart


def of(members: Collection[fleet.FleetPod]) -> Mapping[str, Sequence[fleet.FleetPod]]:
    """The pods of a gang by the policy they were admitted under, by rank; those not injected have none."""
    found: dict[str, list[fleet.FleetPod]] = {}
    for pod in sorted((pod for pod in members if pod.policy), key=lambda pod: pod.rank):
        found.setdefault(pod.policy, []).append(pod)
    return found


def sentence(found: Mapping[str, Sequence[fleet.FleetPod]], current: str) -> str:
    """What to say of a gang under these versions where `current` is in force; "" where there is but one."""
    if len(found) < 2:
        return ""
    told = "; ".join(f"{len(pods)} under {_shown(policy)} ({_listed(pods)})" for policy, pods in found.items())
    return (
        f"{sum(map(len, found.values()))} pods were admitted under {len(found)} versions of the policy: {told}; what "
        f"is injected may differ between them: recreate those that are not under the one in force, {_shown(current)}"
    )


def _shown(policy: str) -> str:
    return policy[:_SHOWN]


def _listed(pods: Sequence[fleet.FleetPod]) -> str:
    names = ", ".join(pod.key.partition("/")[2] for pod in pods[:_NAMED])
    return names + (", ..." if len(pods) > _NAMED else "")
