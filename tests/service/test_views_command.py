"""`railwright gangs` and `fabric` against an API server of the test's own. Unusable ones: test_cluster_faults.py."""

import asyncio
import json

import api_stub
import pytest
import varied_clusters
from aiohttp import web

from railwright.cli.__main__ import main
from railwright.fabric import names

VISTA = varied_clusters.Vista(1, 2, 3, gangs=0, waiting=0)
VISTA.add_gang(4, name="llama", namespace="prod", placed=4)
OBJECTS = {
    "/api/v1/nodes": VISTA.nodes,
    "/api/v1/pods": VISTA.pods,
    "/apis/scheduling.volcano.sh/v1beta1/podgroups": VISTA.groups,
    "/apis/batch/v1/jobs": [],
    "/apis/apps/v1/statefulsets": [],
    "/apis/apps/v1/replicasets": [],
}  # of every other kind there is not even a CRD
POLICY = f"/api/v1/namespaces/{names.NAMESPACE}/configmaps/{names.POLICY_CONFIGMAP}"


def status(code, reason, message="no"):
    return web.json_response({"kind": "Status", "reason": reason, "message": message}, status=code)


@pytest.fixture
async def server(tmp_path):
    """Yield a kubeconfig and the answers by path, which a test may replace."""
    special = {}

    async def answer(request):
        if request.path in special:
            return special[request.path]()
        if request.path == POLICY:
            return web.json_response({"metadata": {"name": "p"}, "data": {names.POLICY_KEY: varied_clusters.POLICY}})
        if request.path not in OBJECTS:
            return status(404, "NotFound")
        every, begin = OBJECTS[request.path], int(request.query.get("continue", "0"))
        more = {"continue": str(begin + 2)} if begin + 2 < len(every) else {}
        return web.json_response({"metadata": more, "items": every[begin : begin + 2]})  # two an answer

    async with api_stub.serve(answer) as port:
        yield api_stub.kubeconfig(tmp_path, port), special


async def run(capsys, kubeconfig, *arguments):
    code = await asyncio.to_thread(main, [*arguments, "--kubeconfig", kubeconfig])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


async def test_all_pages_of_all_kinds_make_the_view(server, capsys):
    kubeconfig, _ = server
    code, out, err = await run(capsys, kubeconfig, "gangs", "-o", "json")
    (gang,) = json.loads(out)
    assert (code, err, gang["key"], gang["placed"], len(gang["ranks"])) == (0, "", "prod/llama", 4, 4)
    _, out, _ = await run(capsys, kubeconfig, "fabric", "-o", "json")
    assert [fabric["nodes"] for fabric in json.loads(out)["fabrics"]] == [6]


async def test_optional_kinds_that_may_not_be_listed_are_reported_and_left_out(server, capsys):
    kubeconfig, special = server
    special["/apis/batch/v1/jobs"] = lambda: status(403, "Forbidden")
    code, out, err = await run(capsys, kubeconfig, "gangs")
    assert code == 0
    assert "llama" in out
    assert err == "railwright: you may not list jobs: data from them is not shown\n"


@pytest.mark.parametrize(
    ("path", "given", "message"),
    [
        ("/api/v1/nodes", (403, "Forbidden"), "you may not list nodes -A (403 Forbidden: no); ask an administrator"),
        ("/api/v1/pods", (403, "Forbidden"), "of the cluster for this right (kubectl auth can-i list pods -A)"),
        ("/api/v1/nodes", (500, "InternalError"), "answers 500 Internal Server Error"),
        (POLICY, (404, "NotFound"), "To read it from a file: --policy FILE"),
    ],
)
async def test_a_missing_source_is_reported_with_the_fix(server, capsys, path, given, message):
    kubeconfig, special = server
    special[path] = lambda: status(*given)
    code, out, err = await run(capsys, kubeconfig, "gangs")
    assert (code, out) == (2, "")
    assert message in err


async def test_verify_takes_the_policy_of_the_cluster(server, capsys):
    kubeconfig, _ = server
    code, out, err = await run(capsys, kubeconfig, "verify", "manifest", "--kind", "job")
    assert (code, err) == (0, "railwright: fabric roce has no gpusPerNode: the job requests 8 GPUs of each node\n")
    assert "railwright.io/fabric: roce" in out
