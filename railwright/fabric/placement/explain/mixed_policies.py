"""Finds gangs with pods that were admitted under different versions of the policy: their injected settings may differ.

Scores do not depend on it: placement uses the current policy for all pods.
"""

from collections.abc import Collection, Mapping, Sequence

from railwright.fabric.placement.state import pod_info
from railwright.fabric.reasons import reason
from railwright.fabric.reasons.codes import Code

_SHOWN_DIGITS = 19  # "sha256:" and 12 digits, enough to distinguish versions


def group_by_policy(members: Collection[pod_info.PodInfo]) -> Mapping[str, Sequence[pod_info.PodInfo]]:
    """Group the pods of a gang by the digest of the policy they were admitted under, in rank order.

    Pods without injection are left out.
    """
    pods_by_policy: dict[str, list[pod_info.PodInfo]] = {}
    for pod in sorted((pod for pod in members if pod.policy), key=lambda pod: pod.rank):
        pods_by_policy.setdefault(pod.policy, []).append(pod)
    return pods_by_policy


def describe(pods_by_policy: Mapping[str, Sequence[pod_info.PodInfo]], current: str) -> reason.Reason | None:
    """Return the reason for a gang with several policy versions; None if there is only one. `current` is in force."""
    if len(pods_by_policy) < 2:
        return None
    versions = tuple(
        (_shorten(policy), len(pods), reason.take_first(pod.key.partition("/")[2] for pod in pods))
        for policy, pods in pods_by_policy.items()
    )
    return reason.make(Code.POLICIES_DIFFER, versions=versions, current=_shorten(current))


def _shorten(policy: str) -> str:
    return policy[:_SHOWN_DIGITS]
