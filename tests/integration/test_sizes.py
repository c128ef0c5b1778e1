"""Gang sizes, read from the real API server with the extender's service account."""

import pytest_asyncio
from plane import gangs, manifests, waiting

POLICY = manifests.policy({"ib": manifests.fabric(placement={"domains": [gangs.LEAF]})})
RAIL = {gangs.RAILS[0]: 1}


def question(namespace: str, names: list[str]) -> dict:
    requests = {"nvidia.com/gpu": "8", gangs.RAILS[0]: "1"}
    pod = manifests.pod(
        "train-0", "ib", labels={gangs.JOB_NAME: "train"}, container={"resources": {"requests": requests}}
    )
    pod["metadata"] |= {"namespace": namespace, "uid": "u"}
    return {"Pod": pod, "Nodes": None, "NodeNames": names}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def leaves(module_nodes):
    return await gangs.make_leaves(module_nodes, RAIL, tight=1, wide=4)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def extender(module_nodes, leaves, module_site):
    await module_nodes.make("unlabelled", rails=RAIL)
    return await module_site.install_extender(POLICY)


async def test_the_parallelism_of_a_job_is_its_gang_size(plane, namespace, leaves, extender):
    async def find_best() -> set[str]:
        url = f"http://127.0.0.1:{extender.port}/scheduler/prioritize"
        async with plane.session.post(
            url, json=question(namespace, [name for leaf in leaves for name in leaf])
        ) as answer:
            rows = await answer.json()
        most = max(row["Score"] for row in rows)
        return {row["Host"].rpartition("-")[0] for row in rows if row["Score"] == most}

    async def prefers(leaf: str) -> None:
        async def is_chosen() -> bool:
            leaves = await find_best()
            assert leaves == {leaf}
            return True

        await waiting.wait(is_chosen, describe=f"the pod to be wanted on leaf {leaf}")

    await prefers("tight")
    # suspended, it makes no pods yet: what is known of its size, the Job itself says
    job = gangs.job("train", 4, fabric="")
    job["spec"]["suspend"] = True
    await plane.api.create(job, namespace=namespace)
    await prefers("wide")
    await plane.api.delete("batch/v1/Job", "train", namespace)
    await prefers("tight")
