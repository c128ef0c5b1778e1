"""The cost of a tenant's object stays within the budget for any value of any field.

The objects are generated from the views.
"""

import asyncio
import contextlib
import functools
import itertools
from typing import Any

import admitting
import cost_budget
import msgspec
import pytest
import read_keys
import watched_objects
import working
import yaml
from watched_objects import _no_log  # noqa: F401 - a fixture for all tests

from railwright.cluster import resources
from railwright.fabric import names, views
from railwright.fabric.nccl import catalogue
from railwright.fabric.policy import model
from railwright.fabric.workloads import frameworks
from webhook import __main__ as webhook_main
from webhook import claim_templates, pods, response_cache, reviews, state, workloads

# Each key of a fabric is in one of them, but for those of which a review of a pod depends on nothing
UNREAD = ("placement", "rails.*.claim", "accelerators.*")  # the list of accelerators is always empty
POLICIES = {
    "networks": """
  f:
    transport: roce
    namespaces: {kubernetes.io/metadata.name: prod}
    rails: [{name: rail0, network: prod/lan2, resource: d/a}, {name: rail1, network: prod/lan3}]
    railsPerPod: all
    devicesPerRail: 1
    resources: {hugepages-2Mi: 4Gi}
    mounts:
      devInfiniband: true
      sharedMemory: 64Gi
      hostPaths: {/opt/w: /opt/v}
      configMaps: {/etc/v: c}
    security: {capabilities: [IPC_LOCK], privileged: true}
    nccl:
      derive: true
      forbidTcpFallback: true
      addressRange: 192.168.0.0/16
      trafficClass: 106
    resolve: always\n    preflight: {image: i, mtu: 4200, onFailure: warn}""",
    "claims": """
  f:
    transport: roce
    gpusPerNode: 8
    claims:
      deviceClass: mrdma.google.com
      railAttribute: dra.net/rdmaDevice
      acceleratorClass: gpu.nvidia.com
      pairBy: none
    nvlinkSegment: 16
    placement: {domains: [nvidia.com/gpu.clique]}
    rails: [{name: rail0, device: mlx5_0}, {name: rail1, device: mlx5_1}]""",
    "vendor": """
  f:
    transport: roce
    rails: [{name: rail0, interface: eth1, resource: a.b/c}, {name: rail1, interface: eth2, resource: a.b/c}]
    deviceScope: pod
    primaryInterface: eth0
    libraryPath: [/v]
    annotations: {note: y, a.b/networks: '[{"name": "eth1"}, {"name": "eth2"}]'}
    nccl: {plugin: Libfabric, vendorVariables: [NCCL_DEBUG, FI_*]}
    env: {NCCL_IB_SL: "1"}
    sourceScript: /v/e.sh""",
    "warn": """
  f:
    transport: roce
    rails: [{name: rail0, device: mlx5_0, resource: d/a}]
    gpusPerNode: 8
    hostNetwork: true
    delivery: files
    nccl: {gidIndex: 3}""",
    "cpus": """
  f:
    transport: roce
    accelerators: []
    rails: [{name: rail0, device: mlx5_0, resource: d/a}]""",
}
# Of workloads: a request of topology is computed for them, and none for pods
TOPOLOGY = """
  f:
    transport: roce
    placement: {domains: [example.com/leaf, example.com/spine], gangTopology: required}
    rails: [{name: rail0, network: prod/lan2, resource: d/a}, {name: rail1, network: prod/lan3}]"""
BASE: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "prod", "uid": "u", "labels": {names.FABRIC: "f"}},
    "spec": {
        "containers": [{"name": "c", "image": "i", "command": ["c"], "resources": {"limits": {"nvidia.com/gpu": "8"}}}]
    },
}
MOST = cost_budget.Size(values=reviews.MAX_POD_VALUES - 100)  # the most that is not rejected at once
KEYS = read_keys.list_keys()
# Lists of claims, templates, classes and slices have at most 256 entries (ResourceClaimReservedForMaxSize; the others
# fewer: https://github.com/kubernetes/api/blob/v0.34.1/resource/v1/types.go)
CLAIMED = cost_budget.Size(listed=256)
WATCHES = {
    watch.kind.name: watch.kind.view
    for watch in webhook_main._list_watches(state.State())
    if watch.kind.name != "nodes"  # no tenant writes them
}


def name_own(path, number):
    """Return names that railwright writes and reads: of claims, templates, variables, keys and paths."""
    if path[-1] == "resourceClaimTemplateName":
        return f"railwright-f-8x2-{number:010x}"
    if path[-1] in {"mountPath", "devicePath"}:
        return f"/dev/infiniband/{number}"
    if path[-1] == "name" and "env" in path:
        return f"NCCL_IB_{number}"
    if path[-1] == "name":
        return "railwright" if number == 0 else f"railwright-{number}"
    return KEYS[number] if number < len(KEYS) else f"railwright.io/{number}"


THEMES = (cost_budget.name_plainly, name_own)


@pytest.fixture(scope="module", autouse=True)
def _prepare():
    catalogue.list_variables()


@pytest.fixture(params=POLICIES)
def by(request):
    return read_policy(POLICIES[request.param])


@pytest.fixture
def check_pods(by, request):
    """Return a function that reviews one of `share` pods by a policy; the next policy reviews other pods."""
    turn = list(POLICIES).index(request.node.callspec.params["by"])

    def check(rows, share):
        rows = cost_budget.sample_rows(rows, share, turn)
        cost_budget.check_objects(rows, functools.partial(answer_pod, by), encode=review)

    return check


def read_policy(fabrics):
    return admitting.read_policy(f"apiVersion: railwright.io/v1alpha1\nfabrics:{fabrics}")


def review(tree, kind="Pod"):
    request = {"uid": "u", "kind": {"group": "", "version": "v1", "kind": kind}, "operation": "CREATE"}
    request |= {"namespace": "prod", "object": tree}
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def answer_pod(by, body):
    with contextlib.suppress(reviews.MalformedError):  # 400: the type of a field is wrong, or nesting is too deep
        cache = response_cache.ResponseCache()
        pods.answer_review(body, by, _build_facts, cache)


def _build_facts(namespace):
    return admitting.build_facts(namespace, version=1)


def test_the_cost_of_one_field_of_a_reviewed_pod_is_bounded(check_pods):
    rows = cost_budget.list_objects(views.Pod, BASE, themes=THEMES)
    check_pods(rows, 15)


def test_a_pod_with_the_most_entries_is_reviewed_within_the_budget(check_pods):
    rows = cost_budget.list_objects(views.Pod, BASE, size=MOST, themes=THEMES)
    check_pods([row for row in rows if "entries" in row.title], len(POLICIES))


def test_the_cost_of_any_two_large_fields_of_a_pod_is_bounded(check_pods):
    rows = cost_budget.list_pairs(views.Pod, BASE, size=MOST, themes=THEMES)
    check_pods(rows, 20)


def test_the_cost_of_a_label_or_annotation_that_railwright_reads_is_bounded(by, check_pods):
    read = response_cache.PlanInputs(by.document)
    rows = read_keys.list_pods(BASE, sorted({*KEYS, *response_cache.LABELS, *read.annotations}))
    check_pods(rows, 15)


def fill_variables(part, length):
    """Return a pod that sets each known variable of NCCL to a value of about `length` bytes."""
    value = cost_budget.repeat_part(part, length)
    env = [{"name": variable.name, "value": value} for variable in catalogue.list_variables()]
    return cost_budget.set_value(BASE, ("spec", "containers", "*", "env"), env)


def test_the_cost_of_all_variables_of_nccl_at_once_is_bounded(check_pods):
    rows = [
        cost_budget.Row(f"{part!r} {length}", functools.partial(fill_variables, part, length))
        for part in cost_budget.PARTS
        for length in (1, 100, 3000)
    ]
    check_pods(rows, 5)


def test_the_policies_of_these_tests_have_every_key_of_a_fabric():
    present = {
        ".".join(path)
        for text in POLICIES.values()
        for path in list_paths(yaml.safe_load(f"fabrics:{text}")["fabrics"]["f"])
    }
    fields = cost_budget.list_fields(model.Fabric)
    maps = tuple(f"{'.'.join(field.path)}." for field in fields if field.kind == "map")
    titles = [title for field in fields if not (title := ".".join(field.path)).startswith((*maps, *UNREAD))]
    assert titles
    assert set(titles) <= present


def list_paths(tree, path=()):
    """Yield the paths of all values of a tree, in the form of fields' paths."""
    yield path
    for step, below in tree.items() if isinstance(tree, dict) else ():
        yield from list_paths(below, (*path, step))
    for below in tree if isinstance(tree, list) else ():
        yield from list_paths(below, (*path, cost_budget.EACH))


# --- workloads ----------------------------------------------------------------------------------------


MINIMAL: dict[str, Any] = {"metadata": {}, "spec": {"containers": [{"name": "c"}]}}
MANY_TEMPLATES = frameworks.MAX_VALUES // (msgspec.json.encode(BASE).count(b",") + 5)


def build_workload(row, pod, copies):
    """Return a workload with `copies` templates, or as many as its kind allows."""
    tree = working.build_workload(row, {"metadata": pod["metadata"], "spec": pod["spec"]}, label="f")
    for site in row.templates:
        above = tree
        for step, after in itertools.pairwise(site.path):
            if after == "*":
                entries = above[step]
                first = next(iter(entries.values())) if isinstance(entries, dict) else entries[0]
                named = [
                    {**first, **({site.name_field: f"n{n}"} if isinstance(entries, list) else {})}
                    for n in range(copies)
                ]
                above[step] = {f"n{n}": entry for n, entry in enumerate(named)} if isinstance(entries, dict) else named
            above = above[step] if step != "*" else above[next(iter(above)) if isinstance(above, dict) else 0]
    return tree


def check_workload(title, copies, body):
    call = functools.partial(workloads.answer_review, body, read_policy(TOPOLOGY), admitting.build_facts)
    cost_budget.check_cost(cost_budget.measure_cost(call), f"{title}, {copies} templates", len(body))


@pytest.mark.parametrize("label", [None, "f"])
@pytest.mark.parametrize("title", [title for title, (row, _) in working.ALL.items() if "*" in row.templates[0].path])
def test_the_cost_of_a_workload_with_the_most_templates_is_bounded(title, label):
    row, version = working.ALL[title]
    few, more = (msgspec.json.encode(build_workload(row, MINIMAL, n)).count(b",") for n in (100, 200))
    largest = 100 * (frameworks.MAX_VALUES - few) // (more - few)
    for copies in (min(frameworks.MAX_ENTRIES // len(row.templates), largest), largest):
        tree = build_workload(row, MINIMAL, copies)
        if label is None:
            tree["metadata"].pop("labels")
        body = working.review(row, tree, version)
        assert reviews.reject_too_large(body, frameworks.MAX_VALUES) is None
        check_workload(title, copies, body)


@pytest.mark.parametrize("title", working.ALL)
def test_the_cost_of_a_workload_with_large_templates_is_bounded(title):
    row, version = working.ALL[title]
    before = build_workload(row, cost_budget.set_value(BASE, ("spec", "hostNetwork"), True), 120)
    for copies in (120, MANY_TEMPLATES):
        tree = build_workload(row, BASE, copies)
        for request in ({}, {"operation": "UPDATE", "oldObject": before}):
            check_workload(title, copies, working.review(row, tree, version, **request))


# --- what is watched: nobody can reject it ---------------------------------------------------------------


class Client:
    """An API server that accepts every write."""

    async def post(self, *_):
        return b"{}"


class Poster:
    def post(self, *_, **__):
        pass


@pytest.mark.parametrize("kind", WATCHES)
def test_the_cost_of_one_field_of_a_watched_object_is_bounded(kind):
    view = WATCHES[kind]
    rows = list(
        filter(
            watched_objects.is_stored,
            cost_budget.list_objects(view, build_base(view), size=choose_size(kind), themes=THEMES),
        )
    )
    if kind not in {"namespaces", "pods"}:  # a text in the metadata of any other kind is read no further
        rows = [row for row in rows if not row.title.startswith("metadata.") or "entries" in row.title]
    cost_budget.check_objects(cost_budget.sample_rows(rows, 8), functools.partial(watch, kind))


def test_a_watched_pod_with_the_most_values_is_read_within_the_budget():
    """It has as many entries as a pod can have; the watch ignores one with more."""
    most = cost_budget.Size(values=resources.WAITING_PODS.max_values - 100)
    rows = [
        row
        for row in cost_budget.list_objects(views.Pod, BASE, size=most, themes=(*THEMES, cost_budget.write_quantity))
        if row.title.startswith("spec.") and "entries" in row.title
    ]
    cost_budget.check_objects(rows, functools.partial(watch, "pods"))


def choose_size(kind):
    return CLAIMED if kind.endswith(".resource.k8s.io") else cost_budget.LARGEST


def build_base(view):
    return BASE if view is views.Pod else {"metadata": {"name": "n", "namespace": "prod", "uid": "u"}}


async def watch(kind, body):
    """Add an object to the caches, update and use it, and remove it."""
    policy = read_policy(POLICIES["claims"])
    caches = state.State()
    spec = next(row for row in webhook_main._list_watches(caches) if row.kind.name == kind)
    spec.sink.replace([])
    source = await watched_objects.add_object(spec, body)
    controller = claim_templates.ClaimTemplateController(
        Client(), caches, Poster(), get_policy=lambda: policy, get_problem=lambda: ""
    )
    running = asyncio.create_task(controller.run())
    for _ in range(50):  # turns of the event loop; the controller takes one for 500 templates
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await asyncio.sleep(0)
    watched_objects.remove_objects(source)
