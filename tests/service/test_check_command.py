"""`railwright check` against an API server of the test's own: refusals, nonsense, silence; and wrong usage."""

import api_stub
import pytest
import reserved_ports
from aiohttp import web

from railwright.cli.__main__ import main
from railwright.cli.checking import reader, snapshots
from railwright.cluster import client as clients

EVERYTHING = (
    *(source.name for source in snapshots.SOURCES),
    *(snapshots.DRY_RUNS, snapshots.NAMESPACED_PODS, snapshots.PERMISSIONS),
)


def status(code, reason, message):
    return web.json_response({"kind": "Status", "reason": reason, "message": message}, status=code)


async def answer(request):
    path = request.path
    if path == "/version":
        return web.json_response({"gitVersion": "v1.35.0"})
    if path.endswith("/pods"):
        return status(403, "Forbidden", "pods is forbidden: User x")
    if path.endswith("/namespaces"):
        return web.Response(text="<html>a proxy</html>", content_type="application/json")
    if path.endswith("/leases"):
        return status(500, "InternalError", "etcd is away")
    if "selfsubjectaccessreviews" in path:
        review = await request.json()
        allowed = review["spec"]["resourceAttributes"]["resource"] != "clusterroles"
        return web.json_response({"status": {"allowed": allowed}})
    return status(404, "NotFound", "there is none")


@pytest.fixture
async def kubeconfig(tmp_path):
    async with api_stub.serve(answer) as port:
        yield api_stub.kubeconfig(tmp_path, port)


async def look(kubeconfig, **options):
    client = await clients.connect(kubeconfig)
    try:
        cluster = reader.ClusterReader(client, "railwright-system", **options)
        return await cluster.read(EVERYTHING)
    finally:
        await client.close()


async def test_an_unreadable_source_has_a_reason_and_stops_nothing(kubeconfig):
    seen = await look(kubeconfig)
    assert seen.unread["own-pods"] == "you may not list pods -n railwright-system (403 Forbidden)"
    assert "list pods -A" in seen.forbidden
    assert "answers 500 Internal Server Error: etcd is away; " in seen.unread["leases"]
    assert "not as a Kubernetes API server does" in seen.unread["namespaces"]
    assert {"hypernodes", "queues"} <= seen.unknown
    assert seen.get_one("policy") is None
    assert "policy" not in seen.unread, "what does not exist is an answer"


@pytest.fixture
def closed_port():
    with reserved_ports.reserve() as port:
        yield port


def test_an_absent_api_server_is_one_sentence_with_the_fix(tmp_path, capsys, closed_port):
    assert main(["check", "--kubeconfig", api_stub.kubeconfig(tmp_path, closed_port)]) == 2
    captured = capsys.readouterr()
    row, sentence, fix, see, blank, folded, summary = captured.out.splitlines()
    assert (blank, captured.err) == ("", "")
    assert row == "× API server answers"  # noqa: RUF001 - the mark
    assert sentence.startswith(f"    nothing listens at http://127.0.0.1:{closed_port}; ")
    assert (fix[:9], see) == ("    fix: ", "    see: railwright check --explain api-reachable")
    assert folded == "- 75 checks skipped until this is fixed: API server answers"
    assert summary == "76 checks: 1 failed (api-reachable), 75 skipped (-v lists all)"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--wait", "soon"), "give seconds"),
        (("-o", "table"), "invalid choice"),
    ],
)
def test_wrong_usage_exits_2_with_the_reason(tmp_path, capsys, closed_port, options, words):
    assert main(["check", "--kubeconfig", api_stub.kubeconfig(tmp_path, closed_port), *options]) == 2
    assert words in capsys.readouterr().err
