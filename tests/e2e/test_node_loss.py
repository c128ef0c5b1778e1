"""A node loses power: the other one continues the service, and the node's pods run again after its return."""

from plane import load, waiting
from realnode import layout

RESOURCE = "nvidia.com/mlx5_0"
AT_ONCE = 20  # callers of the stream
NOTICED_SECONDS = 60


async def test_pods_are_injected_during_the_loss_of_a_node(installed, pod_namespace):
    lost = layout.NODES[1]

    async def is_noticed() -> bool:
        """Return True if calls of the webhook go to the other node only."""
        slices = await installed.plane.api.list(
            "EndpointSlice", "railwright-system", labels="kubernetes.io/service-name=railwright-webhook"
        )
        endpoints = [endpoint for one in slices for endpoint in one["endpoints"]]
        return not any(one["nodeName"] == lost and one["conditions"]["ready"] for one in endpoints)

    # until the loss is noticed, half of all calls go to the lost node, and a create can meet it any number of times
    creates = load.Load(
        installed.plane.api,
        pod_namespace,
        per_second=10,
        fabric="roce",
        resource=RESOURCE,
        attempts=2 * NOTICED_SECONDS,
    )
    async with creates as stream:
        await waiting.wait(lambda: stream.created > 10, describe="pods before the loss")
        await installed.site.nodes[lost].kill()
        await waiting.wait(is_noticed, seconds=NOTICED_SECONDS, describe=f"{lost} to be noticed as lost")
        created, failures = stream.created, len(stream.failures)
        await waiting.wait(lambda: stream.created > created + 50, seconds=60, describe="pods after the loss")
        assert stream.created > created
        late = [message for _, message in stream.failures[failures:]]
        await installed.site.restart(lost)
        await installed.wait_available()
    assert (stream.lost, stream.uninjected) == (0, 0), stream.failures
    assert len(late) <= AT_ONCE, "only calls that had begun before the loss was noticed may still fail"
    assert {pod["spec"]["nodeName"] for pod in await installed.list_pods("webhook")} == set(layout.NODES)
