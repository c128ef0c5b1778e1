"""The cost of an object that the extender watches stays within the budget for any value of any field.

The extender cannot reject such an object: the budget covers its change and the extender's later work with it.
"""

import asyncio
import functools
import json

import cost_budget
import extending
import msgspec
import pytest
import read_keys
import watched_objects
from placing import LEAF, build_leaves, build_pod, build_policy
from watched_objects import _no_log  # noqa: F401 - a fixture for all tests

from extender import cluster_reports, state
from railwright.cluster import resources
from railwright.fabric.overview import overview_builder
from railwright.serving import metrics

NAMES = {"name": "n", "namespace": "prod", "uid": "u"}
POD = {"metadata": NAMES | {"labels": {"railwright.io/fabric": "roce"}}, "spec": {"containers": [{"name": "c"}]}}
# Of claims and their templates, API servers accept lists of at most 256 entries
CLAIMED = cost_budget.Size(cost_budget.ROOM // 4, listed=256)
# API servers store 150 bytes of defaults with each container
POD_SIZE = cost_budget.Size(cost_budget.ROOM * 2 // 3)
THEMES = (cost_budget.name_plainly,)


class Site:
    """The extender's state with its watches, and all readers of the state."""

    def __init__(self) -> None:
        fabric_policy = build_policy(domains=[LEAF])
        nodes = build_leaves(a=20, b=20)
        known = state.State()
        self.watches = {watch.kind.name: watch for watch in state.list_watches(known)}
        known.apply_policy(fabric_policy)
        known.cluster.replace_nodes(nodes)
        self.verbs = extending.Extender(known, lambda: fabric_policy, clock=lambda: 100.0)
        self.overview = overview_builder.OverviewBuilder(known.cluster, lambda: fabric_policy, known.pools)
        self.gauges = cluster_reports.RailGauges(known, metrics.ExtenderMetrics(), lambda: fabric_policy)
        tree = msgspec.to_builtins(build_pod("p", group="g"))
        self.request = json.dumps({"Pod": tree, "NodeNames": [node.metadata.name for node in nodes]}).encode()

    async def watch(self, kind: str, body: bytes) -> None:
        """Add an object, change it, place a pod, refresh all reports, and remove the object."""
        source = await watched_objects.add_object(self.watches[kind], body)
        await asyncio.sleep(0)
        await self.use()
        watched_objects.remove_objects(source)
        await asyncio.sleep(0)
        await self.use()

    async def use(self) -> None:
        self.verbs.gangs.find_outcomes(100.0)
        for answer in (self.verbs.kube.filter, self.verbs.kube.prioritize):
            answer(self.request)
            await asyncio.sleep(0)
        for _ in self.overview.refresh():
            await asyncio.sleep(0)
        self.overview.build_overview(source="x")
        await asyncio.sleep(0)
        await self.gauges.update()


@pytest.fixture(scope="module")
def site():
    return Site()


OF_THE_CLUSTER = (  # no tenant writes them
    resources.NODES,
    resources.HYPER_NODES,
    resources.NODE_TOPOLOGIES,
    resources.DEVICE_CLASSES,
    resources.RESOURCE_SLICES,
)
# The first kind of each view: the others are read alike, as those of Kubeflow's jobs are
WATCHES = {
    watch.kind.name: watch
    for watch in {
        watch.kind.view: watch for watch in reversed(Site().watches.values()) if watch.kind not in OF_THE_CLUSTER
    }.values()
}


def list_rows(kind):
    view = WATCHES[kind].kind.view
    size = CLAIMED if kind.endswith(".resource.k8s.io") else POD_SIZE if kind == "pods" else cost_budget.LARGEST
    base = POD if kind == "pods" else {"metadata": NAMES}
    for row in cost_budget.list_objects(view, base, size=size, themes=THEMES):
        # API servers reject containers without a name
        is_rejected = kind == "pods" and "depth -1" in row.title
        if watched_objects.is_stored(row) and not is_rejected:
            yield row


@pytest.mark.parametrize("kind", WATCHES)
def test_the_cost_of_one_field_of_a_watched_object_stays_within_the_budget(kind, site):
    cost_budget.check_objects(cost_budget.sample_rows(list_rows(kind), 8), functools.partial(site.watch, kind))


def test_the_cost_of_a_label_or_annotation_of_a_watched_pod_stays_within_the_budget(site):
    rows = cost_budget.sample_rows(read_keys.list_pods(POD, read_keys.list_keys()), 16)
    cost_budget.check_objects(rows, functools.partial(site.watch, "pods"))


def list_largest(kind):
    """Return the objects of a kind with the largest number of entries that the extender accepts."""
    size = cost_budget.Size(values=WATCHES[kind].kind.max_values - 100)
    base, themes = POD if kind == "pods" else {"metadata": NAMES}, (*THEMES, cost_budget.write_quantity)
    rows = cost_budget.list_objects(WATCHES[kind].kind.view, base, size=size, themes=themes)
    return [row for row in rows if row.title.startswith("spec.") and "entries" in row.title]


@pytest.mark.parametrize(
    "kind", [kind for kind, watch in WATCHES.items() if watch.kind.max_values and list_largest(kind)]
)
def test_an_object_with_the_most_values_is_read_within_the_budget(kind, site):
    """The extender ignores a job or pod with more entries."""
    cost_budget.check_objects(list_largest(kind), functools.partial(site.watch, kind), memory=False)
