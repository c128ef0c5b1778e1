"""`railwright explain pod` as people run it: a real extender on a snapshot, and an API server's proxy on its way."""

import asyncio
import contextlib
import json

import aiohttp
import api_stub
import child_processes
import msgspec
import processes
import pytest
import pytest_asyncio
import shell
import yaml
from aiohttp import web
from placing import leaves, pod

from railwright.cli import __main__ as command_line
from railwright.cli import options
from railwright.cli.explanation import pod as pod_explanation

POLICY = """
apiVersion: railwright.io/v1alpha1
fabrics:
  roce:
    transport: roce
    rails: [{name: rail0, resource: nvidia.com/mlx5_0}, {name: rail1, resource: nvidia.com/mlx5_1}]
    placement:
      rails: required
      domains: [fabric.topograph.run/tier-0, fabric.topograph.run/tier-1]
      oversubscription: [8]
"""
GROUP = {
    "apiVersion": "scheduling.volcano.sh/v1beta1",
    "kind": "PodGroup",
    "metadata": {"namespace": "train", "name": "g"},
    "spec": {"minMember": 4},
}


def plain(kind: str, view) -> dict:
    tree = json.loads(msgspec.json.encode(view))
    return {"apiVersion": "v1", **{key: value for key, value in tree.items() if value is not None}, "kind": kind}


class Running:
    def __init__(self, folder):
        self.folder = folder
        self.nodes = leaves(a=4, b=4)
        self.names = [node.metadata.name for node in self.nodes]
        (folder / "policy.yaml").write_text(POLICY)
        self.snapshot()

    def snapshot(self, where=("", "", "", ""), others=()) -> None:
        pods = [pod(f"w-{rank}", group="g", on=on) for rank, on in enumerate(where)]
        trees = [
            *(plain("Node", node) for node in self.nodes),
            *(plain("Pod", pod_tree) for pod_tree in (*pods, *others)),
            GROUP,
        ]
        path = self.folder / "new.yaml"
        path.write_text(yaml.safe_dump_all(trees))
        path.rename(self.folder / "snapshot.yaml")

    async def start(self):
        sources = (f"--policy={self.folder}/policy.yaml", f"--snapshot={self.folder}/snapshot.yaml")
        self.server = await processes.begin("extender", "--plain-http", *sources)
        self.url = f"http://127.0.0.1:{self.server.port}"
        await self.server.ready()
        return self

    async def ask(self, verb: str, rank: int, nodes=None) -> object:
        body = {"Pod": plain("Pod", pod(f"w-{rank}", group="g")), "Nodes": None, "NodeNames": nodes or self.names}
        caller = await self.server.open()
        answer = await caller.ask(json.dumps(body).encode(), path=f"/scheduler/{verb}")
        await caller.close()
        assert answer.status == 200, answer.body
        return json.loads(answer.body)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def running(tmp_path_factory):
    """Yield one extender for all tests, in their order: each waits for what it writes into the snapshot."""
    made = await Running(tmp_path_factory.mktemp("running")).start()
    child_processes.share(made.server.pid)
    yield made
    await made.server.end()


@pytest.fixture
def explain(running, capsys):
    """`await explain("train/w-0")`: `railwright explain pod` by the extender; the exit code, stdout and stderr."""

    async def call(*arguments: str, **more: str) -> tuple[int, str, str]:
        source = [f"--{name}={value}" for name, value in (more or {"extender": running.url}).items()]
        code = await asyncio.to_thread(command_line.main, ["explain", "pod", *arguments, *source])
        return code, *capsys.readouterr()

    return call


async def test_each_candidate_has_one_score_and_those_of_the_planned_leaf_the_best(running):
    rows = await running.ask("prioritize", 0)
    assert [row["Host"] for row in rows] == running.names
    scores = {row["Host"]: row["Score"] for row in rows}
    assert all(0 <= score <= 10 for score in scores.values())  # kube-scheduler's MaxExtenderPriority
    best, worst = ([score for name, score in scores.items() if name.startswith(leaf)] for leaf in ("a-", "b-"))
    assert min(best) > max(worst)


async def test_a_placeable_gang_is_no_finding(running, explain):
    await running.ask("prioritize", 0)
    code, out, _ = await explain("train/w-0")
    assert code == 0
    assert "placeable" in out
    assert "leaves planned (1, least possible 1): a in s-a" in out
    assert "modelled bandwidth 1.00 of at most 1.00, exact" in out


@contextlib.asynccontextmanager
async def api_server(running, tmp_path, seen):
    """Yield an API server that passes calls to Services on as a real one does, without the Authorization header."""

    async def pass_on(request: web.Request) -> web.Response:
        seen.append((request.match_info["service"], dict(request.headers)))
        if request.match_info["service"].startswith("https:"):
            return web.json_response(
                {"kind": "Status", "message": "tls: first record does not look like TLS"}, status=502
            )
        passed = {name: value for name, value in request.headers.items() if name != "Authorization"}
        url = f"{running.url}/{request.match_info['path']}"
        async with aiohttp.ClientSession() as session, session.get(url, headers=passed) as answer:
            return web.Response(status=answer.status, body=await answer.read())

    path = "/api/v1/namespaces/railwright-system/services/{service}/proxy/{path:.*}"
    async with api_stub.serve_routes(web.get(path, pass_on)) as port:
        yield api_stub.kubeconfig(tmp_path, port)


async def test_without_an_address_the_api_server_proxies_the_call(running, explain, tmp_path):
    await running.ask("prioritize", 0)
    seen: list = []
    async with api_server(running, tmp_path, seen) as kubeconfig:
        code, out, err = await explain("train/w-0", kubeconfig=kubeconfig)
    assert code == 0, err
    assert "placeable" in out
    assert [service for service, _ in seen] == ["https:railwright-extender:8713", "http:railwright-extender:8713"]
    assert {headers["X-Railwright-Authorization"] for _, headers in seen} == {"Bearer s3cret"}


async def test_a_spread_gang_is_a_finding(running, explain):
    for rank in range(4):
        await running.ask("prioritize", rank)
    running.snapshot(["a-00", "a-01", "a-02", "b-00"])

    async def is_counted() -> bool:
        return b'railwright_gangs_total{outcome="spread"} 1.0' in (await running.server.ops("/metrics")).body

    await shell.until(is_counted)
    code, out, _ = await explain("w-3", "-n", "train")
    assert code == 1
    assert "spread: 4 pods run on 2 leaves (a in s-a 3, b in s-b 1); 1 was the minimum" in out
    assert "not on the planned leaves: w-3 on b-00 (b in s-b)" in out
    assert "Pod train/w-3 on node b-00: " in out
    assert "; * b-00 runs the pod" in out
    code, out, _ = await explain("train/w-3", "-o", "json")
    assert code == 1
    document = json.loads(out)
    assert document["placement"]["bandwidth"] == 0.5
    assert document["placement"]["leaves_possible"] == 1


async def test_each_refused_node_is_reported_with_numbers_and_holders(running, explain):
    running.snapshot(others=[pod(f"llm-{at}", gpus=0, on=name) for at, name in enumerate(running.names)])

    async def all_refused() -> bool:
        return not (await running.ask("filter", 0))["NodeNames"]

    await shell.until(all_refused)
    code, out, _ = await explain("train/w-0")
    assert code == 1
    assert "unplaceable" in out
    line = next(row for row in out.splitlines() if row.startswith("a-00"))
    assert "rail0 has 0 of 1 free, held by train/llm-0" in line


async def test_a_pod_without_a_scheduler_request_is_unknown(running, explain):
    code, out, err = await explain("train/other")
    assert (code, out) == (2, "")
    assert "no decision on train/other is stored" in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "pod/NAME -n NAMESPACE"),
        (("a/b/c",), "pod/NAME -n NAMESPACE"),
        (("a/b", "-n", "c"), "another namespace"),
        (("a/b", "--policy", "p"), "--policy: only for `explain FILE`"),
        (("--extender", "http://192.0.2.1:1", "--token", "t", "a/b"), "unencrypted"),
        (("--extender", "http://127.0.0.1:1", "a/b"), "port-forward"),
        (("a/b", "--extender", "localhost:8713"), "give a URL such as"),
        (("a/b", "--kubeconfig", "/nonexistent"), "/nonexistent"),
    ],
)
def test_an_extender_that_cannot_be_asked_is_reported_with_the_fix(arguments, said, capsys):
    assert command_line.main(["explain", "pod", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_kubeconfig_is_looked_for_where_kubectl_does(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert command_line.main(["explain", "pod", "a/b"]) == 2
    assert "no kubeconfig, so give the extender's URL: kubectl -n railwright-system" in capsys.readouterr().err


@pytest.mark.parametrize("path", ["./pod", "job/llm.yaml"])
def test_a_file_with_the_name_of_a_form_is_still_a_file(tmp_path, monkeypatch, capsys, path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "job").mkdir()
    (tmp_path / path).write_text(yaml.safe_dump(plain("Pod", pod("w-0", label=None))))
    assert command_line.main(["explain", path, "--policy", "policy.yaml"]) == 0
    assert "unchanged: it did not opt in" in capsys.readouterr().out


async def test_the_extenders_own_error_is_not_replaced_by_that_of_another_scheme(tmp_path):
    """Such as that of an extender whose permissions are gone."""
    reason = "the API server did not review this token: 403 Forbidden"
    seen = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.match_info["service"])
        if request.match_info["service"].startswith("https:"):
            return web.json_response({"error": {"reason": reason}}, status=503)
        return web.json_response({"kind": "Status", "message": "error trying to reach service: EOF"}, status=503)

    path = "/api/v1/namespaces/railwright-system/services/{service}/proxy/{path:.*}"
    async with api_stub.serve_routes(web.get(path, answer)) as port:
        cluster = options.ClusterOptions(kubeconfig=api_stub.kubeconfig(tmp_path, port))
        target = pod_explanation.Target("", "s3cret", "", "", cluster)
        with pytest.raises(pod_explanation.NoExtenderError) as raised:
            await asyncio.to_thread(pod_explanation.fetch_explanation, "train", "w-0", target)
    assert reason in raised.value.cause
    assert "`railwright check` names it" in str(raised.value)
    assert seen == ["https:railwright-extender:8713"]


PODS, EVENTS = "/api/v1/namespaces/prod/pods", "/api/v1/namespaces/prod/events"
NO_DECISION = "no decision on prod/p is stored (the last 1,000 are): this extender has answered for 5 min"
RECORD = {"railwright.io/injection": json.dumps({"fabric": "roce", "role": "worker", "rails": ["rail0"]})}
GATES = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "blocked by gates"}]
PLACED = {"railwright.io/placement": json.dumps({"node": "a"})}


@pytest.mark.parametrize(
    ("metadata", "spec", "conditions", "cause"),
    [
        ({"annotations": RECORD}, {"schedulerName": "my-sched"}, [], "; the pod's schedulerName is my-sched; if this"),
        ({"annotations": RECORD}, {}, GATES, "; the pod has scheduling gates, and no scheduler looks at it"),
        ({"annotations": RECORD}, {"nodeName": "a"}, [], "; the pod has no annotation railwright.io/placement: it was"),
        ({"annotations": {**RECORD, **PLACED}}, {"nodeName": "a"}, [], "; the pod's schedulerName is default-"),
        ({"labels": {"railwright.io/fabrik": "roce"}}, {}, [], ""),
    ],
)
async def test_a_pod_without_a_decision_has_the_cause_that_its_own_objects_show(
    cluster, run, metadata, spec, conditions, cause
):
    tree = {"metadata": {"name": "p", "namespace": "prod", "uid": "u", **metadata}, "spec": spec}
    cluster.keep(f"{PODS}/p", {**tree, "status": {"conditions": conditions}})
    cluster.lists[EVENTS] = []
    cluster.proxied = {"p": (404, {"error": {"reason": NO_DECISION}})}
    code, out, err = await run("explain", "pod/p", "-n", "prod")
    assert code == 0
    if cause:
        assert err.startswith(f"railwright: without scores of nodes: {NO_DECISION}{cause}")
        assert "token" not in err
    else:
        assert err == ""
        assert "Pod prod/p: did not opt in\nwarning: KeyUnknown: label railwright.io/fabrik 'roce' has no effect" in out


def build_owned(name: str, owner: dict | None, labels: dict) -> dict:
    metadata = {"name": name, "namespace": "prod", "uid": name, "labels": labels}
    references = [{**owner, "controller": True}] if owner else []
    return {"metadata": {**metadata, "ownerReferences": references}, "spec": {}}


UNLABELLED = "not injected, because it has no label railwright.io/fabric;"
LABEL = {"railwright.io/fabric": "roce"}
OF_JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "late"}
OF_CRON_JOB = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly"}
JOB = {"spec": {"template": {"spec": {}}}}
CRON_JOB = {**build_owned("nightly", None, LABEL), "spec": {"jobTemplate": {"spec": JOB["spec"]}}}


@pytest.mark.parametrize(
    ("pod_labels", "objects", "said"),
    [
        (LABEL, {}, "label railwright.io/fabric 'roce', but not injected: the label was set after the pod's creation"),
        (
            {},
            {"/apis/batch/v1/namespaces/prod/jobs/late": {**build_owned("late", None, LABEL), **JOB}},
            (
                f"{UNLABELLED} Job late: label railwright.io/fabric 'roce' of the Job does not reach its pods: it was "
                "set after the Job was created, or railwright was not called or the fabric in mode warn then; the "
                "template cannot change, so delete the Job, and create it again with the label\n"
            ),
        ),
        (
            {},
            {
                "/apis/batch/v1/namespaces/prod/jobs/late": {**build_owned("late", OF_CRON_JOB, {}), **JOB},
                "/apis/batch/v1/namespaces/prod/cronjobs/nightly": CRON_JOB,
            },
            (
                f"{UNLABELLED} CronJob nightly: label railwright.io/fabric 'roce' of the CronJob has no effect: a "
                "CronJob passes no label to its pods; set it in spec.jobTemplate"
            ),
        ),
    ],
    ids=["pod", "job", "cronjob"],
)
@pytest.mark.parametrize("form", ["pod/p", "job/late"])
async def test_a_pod_that_was_not_injected_is_a_finding_although_the_extender_knows_it(
    cluster, run, pod_labels, objects, said, form
):
    cluster.stored |= objects
    cluster.keep(f"{PODS}/p", build_owned("p", OF_JOB, pod_labels))
    cluster.lists[EVENTS] = []
    cluster.proxied = {"p": (200, {"pod": "prod/p", "outcome": "placeable", "needs": ["rail0: 1 NIC"]})}
    code, out, err = await run("explain", form, "-n", "prod")
    assert code == 1
    assert out.startswith(f"Pod prod/p: {said}")
    assert "rail0" not in out
    assert "without scores" not in err


@pytest.mark.parametrize(
    ("nodes", "chosen"),
    [(("a", "", ""), "pod llm-1, the first that waits of 3 pods"), (("a", "b"), "pod llm-0, the first of 2 pods")],
)
async def test_a_job_is_explained_by_its_first_pod_that_waits(cluster, run, nodes, chosen):
    labels = {"batch.kubernetes.io/job-name": "llm", "railwright.io/fabric": "roce"}
    for rank, node in enumerate(nodes):
        metadata = {"name": f"llm-{rank}", "namespace": "prod", "uid": f"u{rank}", "labels": labels}
        cluster.keep(f"{PODS}/llm-{rank}", {"metadata": metadata, "spec": {"nodeName": node}})
    name = chosen.split(",")[0].removeprefix("pod ")
    cluster.proxied = {name: (200, {"pod": f"prod/{name}", "outcome": "placeable"})}
    cluster.fault = lambda request: None if request.path == PODS or "/proxy/" in request.path else 403
    code, _, err = await run("explain", "job/llm", "-n", "prod")
    assert code == 0, err
    assert f"railwright: job/llm: {chosen}\n" in err
    assert [path.rpartition("/")[2] for _, path in cluster.asked if "/proxy/" in path] == [name]
    code, _, err = await run("explain", "job/none", "-n", "prod")
    assert (code, "job/none: no pod in namespace prod belongs to it" in err) == (2, True)
