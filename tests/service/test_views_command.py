"""`railwright gangs` and `fabric` against an API server of the test's own. Unusable ones: test_cluster_faults.py."""

import json

import pytest
import varied_clusters

VISTA = varied_clusters.Vista(1, 2, 3, gangs=0, waiting=0)
VISTA.add_gang(4, name="llama", namespace="prod", placed=4)


@pytest.fixture(autouse=True)
def _filled(cluster):
    cluster.lists |= VISTA.get_lists()
    cluster.keep(varied_clusters.CONFIGMAP_PATH, varied_clusters.CONFIGMAP)


@pytest.fixture
def refuse(cluster):
    """Return `refuse(path, status)`: answer requests for a path with an error."""

    def refuse(path: str, status: int) -> None:
        cluster.fault = lambda request: status if request.path == path else None

    return refuse


async def test_gangs_and_fabric_read_every_list_page_of_every_kind(run):
    code, out, err = await run("gangs", "-o", "json")
    (gang,) = json.loads(out)
    assert (code, err, gang["key"], gang["placed"], len(gang["ranks"])) == (0, "", "prod/llama", 4, 4)
    _, out, _ = await run("fabric", "-o", "json")
    assert [fabric["nodes"] for fabric in json.loads(out)["fabrics"]] == [6]
    assert "\npolicy: ConfigMap railwright-system/railwright-policy\n" in (await run("fabric"))[1]


async def test_an_optional_kind_that_may_not_be_listed_is_reported_and_the_gangs_are_listed(refuse, run):
    refuse("/apis/batch/v1/jobs", 403)
    code, out, err = await run("gangs")
    assert code == 0
    assert "llama" in out
    assert err == "railwright: you may not list jobs: data from them is not shown\n"


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/api/v1/nodes", 403, "you may not list nodes -A (403 Forbidden: no); ask an administrator"),
        ("/api/v1/pods", 403, "of the cluster for a ClusterRole with this right (kubectl auth can-i list pods -A)"),
        ("/api/v1/nodes", 403, "; the ClusterRole railwright-cluster-view has this right. Or read files: --snapshot"),
        (varied_clusters.CONFIGMAP_PATH, 403, "; the ClusterRole railwright-cluster-view has this right. To read it"),
        ("/api/v1/nodes", 500, "answers 500: no; "),
        (varied_clusters.CONFIGMAP_PATH, 404, "To read it from a file: --policy FILE"),
    ],
)
async def test_nodes_pods_or_a_policy_that_cannot_be_read_are_reported_with_the_fix(refuse, run, path, status, message):
    refuse(path, status)
    code, out, err = await run("gangs")
    assert (code, out) == (2, "")
    assert message in err
