"""Creates Volcano's HyperNodes."""

from plane import api, gangs, manifests

HYPER_NODE = "topology.volcano.sh/v1alpha1/HyperNode"
# The plugin that reads them. It compares HyperNodes that can hold a gang by CPU, memory and the resources listed here.
AWARE = (
    {"name": "network-topology-aware", "arguments": {"weight": 10, "hypernode.binpack.resources": "nvidia.com/gpu"}},
)


class HyperNodes:
    """Creates HyperNodes, and deletes them at the end."""

    def __init__(self, client: api.Api) -> None:
        self._api = client
        self._names: list[str] = []

    async def add(self, name: str, tier: int, member: str, *selectors: dict) -> None:
        self._names.append(name)
        members = [{"type": member, "selector": selector} for selector in selectors]
        tree = manifests.build("HyperNode", name, spec={"tier": tier, "members": members})
        await self._api.create(tree | {"apiVersion": "topology.volcano.sh/v1alpha1"})

    async def add_nodes(self, name: str, nodes: list[str]) -> None:
        """Create a HyperNode of tier 1 that lists its nodes."""
        await self.add(name, 1, "Node", *({"exactMatch": {"name": node}} for node in nodes))

    async def tree(self, **spines: list[str]) -> None:
        """Create a HyperNode of tier 1 for the nodes of each leaf, and of tier 2 for the leaves of each spine."""
        for spine, leaves in spines.items():
            for leaf in leaves:
                await self.add(leaf, 1, "Node", {"labelMatch": {"matchLabels": {gangs.LEAF: leaf}}})
            await self.add(spine, 2, "HyperNode", *({"exactMatch": {"name": leaf}} for leaf in leaves))

    async def remove(self) -> None:
        """Delete parents first: Volcano crashes if a gang waits while a parent lists a deleted HyperNode."""
        for name in reversed(self._names):
            await self._api.delete(HYPER_NODE, name)
