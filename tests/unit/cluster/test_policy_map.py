"""The policy ConfigMap's way into the store: short texts at once, long ones beside the loop, the newest one wins."""

import asyncio
import os
import pathlib
import signal
import sys

import pytest
import shell

from railwright.cluster import policies, policy_map, sources
from railwright.fabric import names, views

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
    assert store.current is not None
    return store.current.document.fabrics["ib"].rails[0].device


def test_a_policy_that_never_was_is_reported_unlike_one_that_was_deleted():
    origin = sources.Sources(policies.PolicyStore(), None)
    origin.policy_map.replace([])
    assert origin.find_policy_problem() == (
        "no valid policy yet: not found; create ConfigMap railwright-policy in namespace railwright-system with the"
        " key policy.yaml"
    )
    origin.policy_map.replace([config_map(GOOD.format(device="mlx5_0"))])
    assert origin.find_policy_problem() == ""
    origin.policy_map.remove(config_map(""))
    assert origin.store.errors[0].message == "the policy was deleted; create it again"
    assert origin.find_policy_problem() == "", "the last good one is in force"


def children() -> set[str]:
    """The processes that this one has started."""
    tasks = pathlib.Path("/proc/self/task").iterdir()
    return {pid for task in tasks for pid in (task / "children").read_text().split()}


def test_a_short_policy_is_in_force_at_once():
    store = policies.PolicyStore()
    policy_map.PolicyConfigMap(store).upsert(config_map(GOOD.format(device="mlx5_0")))
    assert device(store) == "mlx5_0"


async def test_a_long_policy_leaves_the_loop_its_turns_and_is_then_in_force():
    store = policies.PolicyStore()
    policy_map.PolicyConfigMap(store).upsert(config_map(long("mlx5_1")))
    assert store.current is None, "not read here and now"
    while store.current is None:  # noqa: ASYNC110 - a thread's work
        await asyncio.sleep(0.001)
    assert device(store) == "mlx5_1"


@pytest.mark.skipif(sys.platform != "linux", reason="finds the process that reads policies in /proc")
async def test_a_long_policy_is_read_by_another_process():
    """Time in which this process computes is time in which it answers nobody, in a thread or not."""
    store = policies.PolicyStore()
    source = policy_map.PolicyConfigMap(store)
    older = children()
    source.upsert(config_map(long("mlx5_1")))
    readers: set[str] = set()
    while store.current is None:
        readers |= children() - older
        await asyncio.sleep(0.001)
    assert len(readers) == 1
    assert device(store) == "mlx5_1"


@pytest.mark.skipif(sys.platform != "linux", reason="finds the process that reads policies in /proc")
async def test_nobody_waits_at_the_end_for_a_policy_that_is_being_read():
    source = policy_map.PolicyConfigMap(policies.PolicyStore())
    older = children()
    source.upsert(config_map(long("mlx5_1")))
    await shell.until(lambda: children() - older)
    (reader,) = children() - older
    await shell.until(lambda: b"policy_process" in pathlib.Path(f"/proc/{reader}/cmdline").read_bytes())
    os.kill(int(reader), signal.SIGSTOP)  # it would never end
    (task,) = source._reading
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await shell.until(lambda: reader not in children())


async def test_of_several_long_policies_only_the_newest_is_read_to_the_end():
    store = policies.PolicyStore()
    told: list[int] = []
    store.subscribe(lambda changed: told.append(changed.generation))
    source = policy_map.PolicyConfigMap(store)
    for number in range(5):
        source.upsert(config_map(long(f"mlx5_{number}")))
    await asyncio.gather(*source._reading)
    assert (device(store), told) == ("mlx5_4", [1])


async def test_what_came_after_a_long_policy_is_not_undone_by_it():
    store = policies.PolicyStore()
    told: list[bool] = []
    store.subscribe(lambda changed: told.append(changed.valid))
    source = policy_map.PolicyConfigMap(store)
    source.upsert(config_map(long("mlx5_1")))
    source.upsert(config_map(GOOD.format(device="mlx5_2")))
    await asyncio.gather(*source._reading)
    assert (device(store), told) == ("mlx5_2", [True])
    source.upsert(config_map(long("mlx5_3")))
    source.remove(config_map(""))
    await asyncio.gather(*source._reading)
    assert (device(store), told) == ("mlx5_2", [True, False])
