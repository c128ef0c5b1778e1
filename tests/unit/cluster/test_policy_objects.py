"""The policy ConfigMap: short texts are read at once, long ones in another process; the newest counts."""

import asyncio
import os
import pathlib
import signal
import subprocess
import sys

import pytest
import shell
import yaml

from railwright.cluster import policies, sources
from railwright.fabric import names, views
from railwright.fabric.policy import model

GOOD = (
    "apiVersion: railwright.io/v1alpha1\nkind: FabricPolicy\nfabrics:\n  ib:\n    transport: infiniband\n"
    "    rails: [{{name: rail0, resource: x.y/hca, device: {device}}}]\n"
)


def config_map(text: str) -> views.ConfigMap:
    metadata = views.ObjectMeta(name=names.POLICY_CONFIGMAP, namespace=names.NAMESPACE, uid="u")
    return views.ConfigMap(metadata=metadata, data={names.POLICY_KEY: text})


def long(device: str) -> str:
    return GOOD.format(device=device) + "# so long\n" * 2000


def device(store: policies.PolicyStore) -> str:
    return store.current.document.fabrics["ib"].rails[0].device


def test_missing_and_deleted_policies_are_reported_differently():
    origin = sources.Sources(policies.PolicyStore(), None)
    origin.policy_objects.config_map.replace([])
    assert origin.find_policy_problem() == (
        "no valid policy yet: not found; create ConfigMap railwright-policy in namespace railwright-system with the"
        " key policy.yaml, or a FabricPolicy of this name"
    )
    origin.policy_objects.config_map.replace([config_map(GOOD.format(device="mlx5_0"))])
    assert origin.find_policy_problem() == ""
    origin.policy_objects.config_map.remove(config_map(""))
    assert origin.store.errors[0].message == "the policy was deleted; create it again"
    assert origin.find_policy_problem() == "", "the last good one is in force"


def children() -> set[str]:
    """Return the processes that this one has started."""
    tasks = pathlib.Path("/proc/self/task").iterdir()
    return {pid for task in tasks for pid in (task / "children").read_text().split()}


@pytest.mark.skipif(sys.platform != "linux", reason="finds the process that reads policies in /proc")
async def test_a_long_policy_is_read_by_another_process():
    """A process does not answer while it computes, whether in a thread or not."""
    store = policies.PolicyStore()
    source = sources.PolicyObjects(store)
    older = children()
    source.config_map.upsert(config_map(long("mlx5_1")))
    assert store.current is None, "not read here and now"
    readers: set[str] = set()
    while store.current is None:
        readers |= children() - older
        await asyncio.sleep(0.001)
    assert len(readers) == 1
    assert device(store) == "mlx5_1"


@pytest.mark.skipif(sys.platform != "linux", reason="finds the process that reads policies in /proc")
async def test_a_stopping_server_does_not_wait_for_a_policy_that_is_being_read():
    source = sources.PolicyObjects(policies.PolicyStore())
    older = children()
    readers: set[str] = set()
    source.config_map.upsert(config_map(f"unknown: [{'a, ' * 100_000}]"))  # takes seconds to read
    await shell.until(lambda: readers.update(children() - older) or bool(readers))
    (reader,) = readers
    os.kill(int(reader), signal.SIGSTOP)  # it would never end
    (task,) = source._reading
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await shell.until(lambda: reader not in children())


async def test_of_several_long_policies_only_the_newest_is_read_to_the_end():
    store = policies.PolicyStore()
    generations: list[int] = []
    store.subscribe(lambda changed: generations.append(changed.generation))
    source = sources.PolicyObjects(store)
    for number in range(5):
        source.config_map.upsert(config_map(long(f"mlx5_{number}")))
    await asyncio.gather(*source._reading)
    assert (device(store), generations) == ("mlx5_4", [1])


async def test_a_slow_check_of_a_policy_does_not_undo_a_later_one():
    store = policies.PolicyStore()
    validities: list[bool] = []
    store.subscribe(lambda changed: validities.append(changed.valid))
    source = sources.PolicyObjects(store)
    source.config_map.upsert(config_map(long("mlx5_1")))
    source.config_map.upsert(config_map(GOOD.format(device="mlx5_2")))
    await asyncio.gather(*source._reading)
    assert (device(store), validities) == ("mlx5_2", [True])
    source.config_map.upsert(config_map(long("mlx5_3")))
    source.config_map.remove(config_map(""))
    await asyncio.gather(*source._reading)
    assert (device(store), validities) == ("mlx5_2", [True, False])


def resource(device: str, **metadata: str) -> views.FabricPolicy:
    spec = yaml.safe_load(GOOD.format(device=device))
    del spec["apiVersion"], spec["kind"]
    return fabric_policy(spec, **metadata)


def fabric_policy(spec: dict, name: str = names.POLICY_CONFIGMAP, **metadata: str) -> views.FabricPolicy:
    meta = views.PolicyMeta(name=name, namespace=names.NAMESPACE, uid="r", **metadata)
    return views.FabricPolicy(metadata=meta, spec=spec)


def build_watched() -> tuple[policies.PolicyStore, sources.PolicyObjects]:
    store = policies.PolicyStore()
    return store, sources.PolicyObjects(store, is_resource_watched=True)


@pytest.mark.parametrize("order", [["config_map", "resource"], ["resource", "config_map"]])
def test_the_resource_is_in_force_where_both_exist_and_the_config_map_after_its_deletion(order):
    store, objects = build_watched()
    lists = {
        "config_map": lambda: objects.config_map.replace([config_map(GOOD.format(device="mlx5_0"))]),
        "resource": lambda: objects.resource.replace([resource("mlx5_1")]),
    }
    for name in order:
        lists[name]()
    assert (device(store), store.generation) == ("mlx5_1", 1), "the ConfigMap was never in force"
    assert objects.is_overridden
    objects.config_map.upsert(config_map(GOOD.format(device="mlx5_2")))
    assert device(store) == "mlx5_1"
    objects.resource.remove(resource("mlx5_1"))
    assert device(store) == "mlx5_2"
    assert not objects.is_overridden


def test_a_config_map_is_not_read_before_the_resources_are_listed_and_then_once():
    store, objects = build_watched()
    objects.config_map.replace([config_map(GOOD.format(device="mlx5_0"))])
    assert store.current is None
    for _ in range(3):  # an absent definition is an empty list, again and again
        objects.resource.replace([])
    assert (device(store), store.generation) == ("mlx5_0", 1)


def test_a_resource_that_comes_later_is_in_force_and_an_invalid_one_keeps_the_last_valid_policy():
    store, objects = build_watched()
    objects.config_map.replace([config_map(GOOD.format(device="mlx5_0"))])
    objects.resource.replace([])
    objects.resource.upsert(fabric_policy({"fabrics": {"ib": {"transport": "infinibandd"}}, "defaultFabric": "x"}))
    assert (device(store), store.valid) == ("mlx5_0", False)
    assert [error.path for error in store.errors] == ["spec.defaultFabric", "spec.fabrics.ib.transport"]
    assert [error.line for error in store.errors] == [None, None]
    objects.config_map.upsert(config_map(GOOD.format(device="mlx5_2")))
    assert (device(store), store.valid) == ("mlx5_0", False), "the ConfigMap has no effect"
    objects.resource.upsert(resource("mlx5_1"))
    assert (device(store), store.valid) == ("mlx5_1", True)


def test_a_change_of_the_status_is_no_change_of_the_policy():
    store, objects = build_watched()
    objects.resource.replace([resource("mlx5_1", resource_version="1")])
    objects.resource.upsert(resource("mlx5_1", resource_version="2"))
    assert store.generation == 1


def test_the_object_in_force_is_named_by_its_kind():
    _, objects = build_watched()
    assert objects.holder == ""
    objects.config_map.replace([config_map(GOOD.format(device="mlx5_0"))])
    assert (objects.holder, objects.has_resource) == ("ConfigMap railwright-policy", False)
    objects.resource.replace([resource("mlx5_1")])
    assert (objects.holder, objects.has_resource) == ("FabricPolicy railwright-policy", True)
    objects.resource.remove(resource("mlx5_1"))
    assert objects.holder == "ConfigMap railwright-policy"


def test_a_resource_of_another_name_has_no_effect():
    store, objects = build_watched()
    objects.config_map.replace([config_map(GOOD.format(device="mlx5_0"))])
    objects.resource.replace([fabric_policy({}, name="other")])
    assert device(store) == "mlx5_0"


def test_a_resource_without_fabrics_is_invalid_and_the_whole_document_may_be_in_its_spec():
    store, objects = build_watched()
    objects.config_map.replace([])
    objects.resource.replace([fabric_policy({})])
    assert [str(error) for error in store.errors] == ["spec.fabrics: is missing; it must be a mapping (key: value)"]
    objects.resource.upsert(fabric_policy(yaml.safe_load(GOOD.format(device="mlx5_3"))))
    assert device(store) == "mlx5_3"


@pytest.mark.parametrize("scale", [1e-7, 0.5, 3.0, 1e6])
def test_small_numbers_in_a_resource_are_not_read_as_text(scale):
    document = yaml.safe_load(GOOD.format(device="mlx5_0"))
    document["fabrics"]["ib"]["placement"] = {"scale": scale}
    result = policies.read(policies.write_document(fabric_policy(document)))
    assert isinstance(result, model.Policy), result
    assert result.document.fabrics["ib"].placement.scale == scale


async def test_a_large_resource_is_read_outside_of_the_event_loop():
    store, objects = build_watched()
    spec = yaml.safe_load(GOOD.format(device="mlx5_0"))
    spec["fabrics"]["ib"]["env"] = {"LONG": "x" * 20_000}
    objects.resource.replace([fabric_policy({**spec, "colour": "red"})])
    assert not store.errors, "not read here and now"
    await asyncio.gather(*objects._reading)
    assert [error.path for error in store.errors] == ["spec.colour"]


@pytest.mark.parametrize("server", ["webhook", "extender"])
def test_a_server_has_imported_at_its_start_what_the_first_invalid_policy_needs(server):
    code = f"import sys, {server}.__main__; sys.exit('jsonschema' not in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
