"""The policy ConfigMap: short texts are read at once, long ones in another process; the newest counts."""

import asyncio
import os
import pathlib
import signal
import sys

import msgspec
import pytest
import shell

from extender import __main__ as extender_main
from railwright.cluster import policies, policy_errors, sources
from railwright.fabric import names, views
from webhook import __main__ as webhook_main

GOOD = (
    "apiVersion: railwright.io/v1alpha1\nfabrics:\n  ib:\n    transport: infiniband\n"
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
    origin.policy_object.replace([])
    assert origin.find_policy_problem() == (
        "no valid policy yet: not found; create ConfigMap railwright-policy in namespace railwright-system with the"
        " key policy.yaml"
    )
    origin.policy_object.replace([config_map(GOOD.format(device="mlx5_0"))])
    assert origin.find_policy_problem() == ""
    origin.policy_object.remove(config_map(""))
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
    source = sources.PolicyConfigMap(store)
    older = children()
    source.upsert(config_map(long("mlx5_1")))
    assert store.current is None, "not read here and now"
    readers: set[str] = set()
    while store.current is None:
        readers |= children() - older
        await asyncio.sleep(0.001)
    assert len(readers) == 1
    assert device(store) == "mlx5_1"


@pytest.mark.skipif(sys.platform != "linux", reason="finds the process that reads policies in /proc")
async def test_a_stopping_server_does_not_wait_for_a_policy_that_is_being_read():
    source = sources.PolicyConfigMap(policies.PolicyStore())
    older = children()
    readers: set[str] = set()
    source.upsert(config_map(f"unknown: [{'a, ' * 100_000}]"))  # takes seconds to read
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
    source = sources.PolicyConfigMap(store)
    for number in range(5):
        source.upsert(config_map(long(f"mlx5_{number}")))
    await asyncio.gather(*source._reading)
    assert (device(store), generations) == ("mlx5_4", [1])


async def test_a_slow_check_of_a_policy_does_not_undo_a_later_one():
    store = policies.PolicyStore()
    validities: list[bool] = []
    store.subscribe(lambda changed: validities.append(changed.valid))
    source = sources.PolicyConfigMap(store)
    source.upsert(config_map(long("mlx5_1")))
    source.upsert(config_map(GOOD.format(device="mlx5_2")))
    await asyncio.gather(*source._reading)
    assert (device(store), validities) == ("mlx5_2", [True])
    source.upsert(config_map(long("mlx5_3")))
    source.remove(config_map(""))
    await asyncio.gather(*source._reading)
    assert (device(store), validities) == ("mlx5_2", [True, False])


def test_the_object_is_named_by_its_kind():
    source = sources.PolicyConfigMap(policies.PolicyStore())
    assert source.name == ""
    source.replace([config_map(GOOD.format(device="mlx5_0"))])
    assert source.name == "ConfigMap railwright-policy"


def test_a_config_map_of_another_name_has_no_effect():
    store = policies.PolicyStore()
    source = sources.PolicyConfigMap(store)
    good, other = config_map(GOOD.format(device="mlx5_0")), config_map("")
    renamed = msgspec.structs.replace(other, metadata=msgspec.structs.replace(other.metadata, name="other"))
    source.replace([good, renamed])
    source.upsert(renamed)
    source.remove(renamed)
    assert (device(store), store.valid) == ("mlx5_0", True)


def test_a_policy_with_a_kind_is_in_force_and_the_log_says_that_the_key_is_ignored(caplog):
    store = policies.PolicyStore()
    sources.PolicyConfigMap(store).upsert(config_map("kind: FabricPolicy\n" + GOOD.format(device="mlx5_1")))
    assert device(store) == "mlx5_1"
    (record,) = caplog.records
    assert "PolicyKindIgnored" in record.getMessage()


def test_servers_import_at_their_start_what_the_first_invalid_policy_needs():
    assert all(server._policy_errors is policy_errors for server in (extender_main, webhook_main))
