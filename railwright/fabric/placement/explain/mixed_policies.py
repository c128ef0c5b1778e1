"""Finds gangs with pods that were admitted under different versions of the policy: their injected settings may differ.

Scores do not depend on it: placement uses the current policy for all pods.
"""

from collections.abc import Collection, Mapping, Sequence

from railwright.fabric.placement.state import cluster_state

_MAX_NAMED = 3  # pods listed for each version
_SHOWN_DIGITS = 19  # "sha256:" and 12 digits, enough to distinguish versions


def group_by_policy(members: Collection[cluster_state.PodInfo]) -> Mapping[str, Sequence[cluster_state.PodInfo]]:
    """Group the pods of a gang by the digest of the policy they were admitted under, in rank order.

    Pods without injection are left out.
    """
    pods_by_policy: dict[str, list[cluster_state.PodInfo]] = {}
    for pod in sorted((pod for pod in members if pod.policy), key=lambda pod: pod.rank):
        pods_by_policy.setdefault(pod.policy, []).append(pod)
    return pods_by_policy


def format_warning(pods_by_policy: Mapping[str, Sequence[cluster_state.PodInfo]], current: str) -> str:
    """Format the warning for a gang with several policy versions; "" if there is only one. `current` is in force."""
    if len(pods_by_policy) < 2:
        return ""
    groups = "; ".join(
        f"{len(pods)} under {_shorten(policy)} ({_join_names(pods)})" for policy, pods in pods_by_policy.items()
    )
    pod_count = sum(map(len, pods_by_policy.values()))
    return (
        f"{pod_count} pods were admitted under {len(pods_by_policy)} versions of the policy: {groups}; their "
        f"injected settings may differ: recreate the pods that are not under the current version, {_shorten(current)}"
    )


def _shorten(policy: str) -> str:
    return policy[:_SHOWN_DIGITS]


def _join_names(pods: Sequence[cluster_state.PodInfo]) -> str:
    names = ", ".join(pod.key.partition("/")[2] for pod in pods[:_MAX_NAMED])
    return names + (", ..." if len(pods) > _MAX_NAMED else "")
