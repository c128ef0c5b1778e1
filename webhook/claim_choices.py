"""Chooses the rails of gangs when their first template is written, by the devices that are free then."""

import asyncio
from collections import Counter
from collections.abc import Collection

from railwright.fabric import node_views, views
from railwright.fabric.claims import claim_templates, node_devices, own_claims
from railwright.fabric.policy import claimed_rails
from railwright.fabric.policy import model as policies
from webhook import claim_cache, claim_writes
from webhook import state as states

_NODES_AT_ONCE = 200  # then requests are answered
_ANSWER_SECONDS = 5.0  # an evaluation takes less than a second

Key = claim_cache.Key


class RailChoices:
    """Chooses each gang's rails under a lock, so that a choice counts the earlier ones."""

    def __init__(self, state: states.State) -> None:
        self._state = state
        self._chosen: dict[Key, claim_cache.OwnTemplate] = {}  # templates that the cache does not show yet
        self._choosing = asyncio.Lock()

    def keep(self, missing: Collection[Key]) -> None:
        """Forget the choices for all other templates."""
        self._chosen = {key: template for key, template in self._chosen.items() if key in missing}

    async def choose(
        self, first: Key, pod: views.Pod, writing: claim_writes.Writing, policy: policies.Policy
    ) -> tuple[str, ...]:
        """Return the rails of a pod's gang: those of its first template, otherwise those with the most free devices."""
        async with self._choosing:
            known = self._state.claim_templates.find_rails(first)
            if known:
                return known
            if first in self._chosen:
                return self._chosen[first].rails
            names = writing.device_names
            resources = policy.compile_once(claimed_rails.list_claim_resources)
            self._state.devices.name_resources(resources, names.pair_attribute)
            nodes = await self._count_free(pod, names)
            if self._state.devices.list_questions():  # the first count asks which devices are of which rail
                await self._state.devices.wait_for_answers(_ANSWER_SECONDS)
                nodes = await self._count_free(pod, names)
            free = claim_templates.FreeDevices(nodes=nodes, waiting=self._count_waiting(writing))
            rails = await asyncio.to_thread(writing.choose_rails, free)  # 0.5 s if no two of 5,000 nodes are alike
            self._chosen[first] = claim_cache.OwnTemplate("", writing.plan.fabric, rails)
            return rails

    async def _count_free(self, pod: views.Pod, names: node_devices.DeviceNames) -> Counter[node_devices.FreeRails]:
        """Return for each set of free devices the number of nodes that suit the pod and have it."""
        counts: Counter[node_devices.FreeRails] = Counter()
        for number, name in enumerate(self._state.devices.list_nodes()):
            node = self._state.nodes.by_name.get(name)
            if node is not None and _may_have(node, pod):
                counts[self._state.devices.count_free_rails(name, names)] += 1
            if number % _NODES_AT_ONCE == _NODES_AT_ONCE - 1:
                await asyncio.sleep(0)
        return counts

    def _count_waiting(self, writing: claim_writes.Writing) -> Counter[tuple[int, ...]]:
        """Return the number of pods without a node by the rails of their template, as positions in the fabric."""
        positions = {rail: position for position, rail in enumerate(writing.claimed.claims.rails)}
        counts: Counter[tuple[int, ...]] = Counter()
        for key, template in {**self._state.claim_templates.own, **self._chosen}.items():
            if template.fabric == writing.plan.fabric and own_claims.is_first(key[1]):
                rails = tuple([positions[rail] for rail in template.rails if rail in positions])
                counts[rails] += self._state.claiming_pods.count_waiting(key)
        return counts


def _may_have(node: node_views.Node, pod: views.Pod) -> bool:
    """True if the node is not cordoned, and has the labels of the pod's nodeSelector."""
    labels = node.metadata.labels
    return not node.spec.unschedulable and all(
        labels.get(key) == value for key, value in (pod.spec.node_selector or {}).items()
    )
