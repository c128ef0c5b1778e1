"""Pods that kube-scheduler places while its extender is unreachable."""

import contextlib

from plane import gangs, waiting


@contextlib.asynccontextmanager
async def unreachable(plane, *, ignorable):
    """Yield an installation whose extender has been killed."""
    async with gangs.running(plane, ignorable=ignorable) as running:
        await running.extender.kill()
        running.proxy.backend = None
        yield running


async def test_pods_are_bound_while_an_ignorable_extender_is_unreachable(plane, nodes, namespace):
    await gangs.make_leaves(nodes, a=2)
    async with unreachable(plane, ignorable=True) as kube:
        await gangs.create(plane.api, namespace, [gangs.pod(f"p-{index}", gpus=0) for index in range(3)])
        await gangs.wait_event(plane.api, namespace, "p-2", "2 Insufficient nvidia.com/mlx5_0")

        async def are_bound() -> bool:  # kube-scheduler goes on while a binding is being written
            placed = await plane.api.list("Pod", namespace)
            assert sorted(map(gangs.get_node, placed)) == ["", "a-00", "a-01"]
            return True

        await waiting.wait(are_bound, describe="two of three pods to be bound")
        assert kube.proxy.counts["/scheduler/filter"] >= 2


async def test_pods_with_rails_wait_while_an_extender_that_is_not_ignorable_is_unreachable(plane, nodes, namespace):
    await gangs.make_leaves(nodes, a=2)
    async with unreachable(plane, ignorable=False) as kube:
        await gangs.create(plane.api, namespace, [gangs.pod("railed-0", gpus=0), gangs.pod("bare-0", gpus=1, rails={})])
        await gangs.wait_event(plane.api, namespace, "railed-0", "/scheduler/filter")

        async def is_untouched():
            return gangs.get_node(await plane.api.get("Pod", "bare-0", namespace))

        assert await waiting.wait(is_untouched, describe="the pod without rails to be bound")
        assert gangs.get_node(await plane.api.get("Pod", "railed-0", namespace)) == ""
        await kube.start_extender()
        await gangs.wait_bound(plane.api, namespace, 2)
