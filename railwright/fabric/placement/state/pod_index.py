"""Indexes pods by UID, node and gang, and adds up what the pods of each node request."""

from collections import defaultdict

from railwright.fabric import resources
from railwright.fabric.placement.state import pod_info
from railwright.fabric.workloads import membership


class PodIndex:
    """Pods that have not ended. Nodes and gangs without pods have no entry, so that deleted ones leave nothing."""

    def __init__(self) -> None:
        self.by_uid: dict[str, pod_info.PodInfo] = {}
        self.by_node: dict[str, dict[str, pod_info.PodInfo]] = defaultdict(dict)  # bound pods
        self.by_gang: dict[membership.GangKey, dict[str, pod_info.PodInfo]] = defaultdict(dict)  # not terminating ones
        self.by_claim: dict[str, set[str]] = {}  # namespace/name of a claim that specs name -> UIDs
        self.by_template: dict[str, set[str]] = {}  # namespace/name of a ResourceClaimTemplate -> UIDs
        self.used_by_node: dict[str, dict[str, int]] = defaultdict(dict)

    def add(self, pod: pod_info.PodInfo, *, joins_gang: bool) -> None:
        """Add a pod that is not indexed. A pod that does not join its gang is terminating, or has none."""
        self.by_uid[pod.uid] = pod
        for index, key in self._list_claim_keys(pod):
            index.setdefault(key, set()).add(pod.uid)
        if joins_gang:
            self.by_gang[pod.gang][pod.uid] = pod
        if pod.node:
            self.by_node[pod.node][pod.uid] = pod
            self._add_usage(pod.node, pod.requests, sign=1)

    def remove(self, uid: str) -> pod_info.PodInfo | None:
        """Remove a pod, and return it; None if it is unknown."""
        pod = self.by_uid.pop(uid, None)
        if pod is None:
            return None
        for index, key in self._list_claim_keys(pod):
            uids = index.get(key, set())
            uids.discard(uid)
            if not uids:
                index.pop(key, None)
        if pod.gang in self.by_gang:
            self.by_gang[pod.gang].pop(uid, None)
            if not self.by_gang[pod.gang]:
                del self.by_gang[pod.gang]
        if pod.node:
            self._remove_from_node(pod)
        return pod

    def replace(self, pod: pod_info.PodInfo) -> None:
        """Replace a pod by itself with other requests."""
        previous = self.by_uid[pod.uid]
        self.by_uid[pod.uid] = pod
        if pod.uid in self.by_gang.get(pod.gang, {}):
            self.by_gang[pod.gang][pod.uid] = pod
        if pod.node:
            self.by_node[pod.node][pod.uid] = pod
            self._add_usage(pod.node, previous.requests, sign=-1)
            self._add_usage(pod.node, pod.requests, sign=1)

    def _list_claim_keys(self, pod: pod_info.PodInfo) -> list[tuple[dict[str, set[str]], str]]:
        """Return the entries of the indexes by claim and by template that have the pod."""
        by_claim = [(self.by_claim, key) for key in pod.claim_names]
        return by_claim + [(self.by_template, template.key) for template in pod.templates]

    def _remove_from_node(self, pod: pod_info.PodInfo) -> None:
        self.by_node[pod.node].pop(pod.uid, None)
        self._add_usage(pod.node, pod.requests, sign=-1)
        if not self.by_node[pod.node]:
            self.by_node.pop(pod.node, None)
            self.used_by_node.pop(pod.node, None)

    def _add_usage(self, node: str, requests: resources.Amounts, *, sign: int) -> None:
        used = self.used_by_node[node]
        for name, amount in requests.items():
            used[name] = used.get(name, 0) + sign * amount
