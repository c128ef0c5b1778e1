"""`railwright explain pod` with a real extender on a snapshot, through an API server's proxy."""

import asyncio
import json
import re

import aiohttp
import api_stub
import msgspec
import processes
import pytest
import yaml
from aiohttp import web
from placing import build_leaves, build_pod

from railwright.cli import __main__ as command_line
from railwright.cli import policy_sources
from railwright.cli.explanation import pod as pod_explanation
from railwright.fabric.reasons import codes

POLICY = """
apiVersion: railwright.io/v1alpha1
fabrics:
  roce:
    transport: roce
    rails: [{name: rail0, resource: nvidia.com/mlx5_0}, {name: rail1, resource: nvidia.com/mlx5_1}]
    placement:
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


async def test_explain_sends_the_token_of_the_kubeconfig_to_the_extender(tmp_path, capsys):
    pods = [plain("Pod", build_pod(f"w-{rank}", group="g")) for rank in range(4)]
    (tmp_path / "policy.yaml").write_text(POLICY)
    trees = [*(plain("Node", node) for node in build_leaves(a=4, b=4)), *pods, GROUP]
    (tmp_path / "snapshot.yaml").write_text(yaml.safe_dump_all(trees))
    sources = (f"--policy={tmp_path}/policy.yaml", f"--snapshot={tmp_path}/snapshot.yaml")
    extender = await processes.begin("extender", "--plain-http", *sources)
    await extender.ready()
    seen = []

    async def pass_on(request: web.Request) -> web.Response:
        """Forward a call to a Service as a real API server does, without the Authorization header."""
        seen.append((request.match_info["service"], request.headers["X-Railwright-Authorization"]))
        if request.match_info["service"].startswith("https:"):
            return web.json_response(fail("tls: first record does not look like TLS"), status=502)
        passed = {name: value for name, value in request.headers.items() if name != "Authorization"}
        url = f"http://127.0.0.1:{extender.port}/{request.match_info['path']}"
        async with aiohttp.ClientSession() as session, session.get(url, headers=passed) as answer:
            return web.Response(status=answer.status, body=await answer.read())

    async def show_pod(_: web.Request) -> web.Response:
        annotations = {**pods[0]["metadata"]["annotations"], "railwright.io/injection": json.dumps(RECORD)}
        return web.json_response({**pods[0], "metadata": {**pods[0]["metadata"], "annotations": annotations}})

    path = "/api/v1/namespaces/railwright-system/services/{service}/proxy/{path:.*}"
    routes = (web.get(path, pass_on), web.get("/api/v1/namespaces/train/pods/w-0", show_pod))
    async with api_stub.serve_routes(*routes) as port:
        words = ["explain", "pod", "train/w-0", "--kubeconfig", api_stub.kubeconfig(tmp_path, port)]
        code = await asyncio.to_thread(command_line.main, words)
    out, err = capsys.readouterr()
    await extender.end()
    assert code == 0, err
    assert "waiting: 0 of 4 pods of gang g placed, 1 leaf, 1 possible, modelled bandwidth 1.00 possible" in out
    assert "because: the 4 remaining pods fit now, on 1 leaf (a in s-a); the scheduler has not placed them" in out
    services = ("https:railwright-extender:8713", "http:railwright-extender:8713")
    assert seen == [(service, "Bearer s3cret") for service in services]


async def test_explain_fails_for_a_pod_that_does_not_exist(run):
    code, out, err = await run("explain", "pod/other", "-n", "train")
    assert (code, out) == (2, "")
    assert err.startswith("railwright: pod/other does not exist in namespace train. ")
    assert "install" not in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("",), "pod/NAME -n NAMESPACE"),
        (("a/b/c",), "pod/NAME -n NAMESPACE"),
        (("a/b", "-n", "c"), "another namespace"),
        (("a/b", "--policy", "p"), "--policy: only `explain FILE` has this option; leave it out"),
    ],
)
def test_explain_names_wrong_arguments_with_the_fix(arguments, said, capsys):
    assert command_line.main(["explain", "pod", *arguments]) == 2
    assert said in capsys.readouterr().err


async def test_explain_shows_the_error_of_the_extender_and_does_not_try_http(tmp_path):
    """An example is an extender that has lost its permissions."""
    reason = "the API server did not answer the TokenReview or the SubjectAccessReview: 403 Forbidden"
    seen = []

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.match_info["service"])
        if request.match_info["service"].startswith("https:"):
            return web.json_response({"error": {"reason": reason}}, status=503)
        return web.json_response({"kind": "Status", "message": "error trying to reach service: EOF"}, status=503)

    path = "/api/v1/namespaces/railwright-system/services/{service}/proxy/{path:.*}"
    async with api_stub.serve_routes(web.get(path, answer)) as port, api_stub.connected(tmp_path, port) as client:
        with pytest.raises(pod_explanation.NoExtenderError) as raised:
            await pod_explanation.ask_extender(client, "train", "w-0", "s3cret")
    assert reason in str(raised.value)
    assert "`railwright check` names it" in str(raised.value)
    assert seen == ["https:railwright-extender:8713"]


GANG = {"key": "prod/g", "name": "g", "namespace": "prod", "fabric": "f", "colour": 0, "size": 1, "placed": 0}
GANG["state"] = "waiting"
JOBS = "/apis/batch/v1/namespaces/prod/jobs"
PODS, EVENTS = "/api/v1/namespaces/prod/pods", "/api/v1/namespaces/prod/events"
RECORD = {"fabric": "roce", "role": "worker", "rails": ["rail0"]}
LABEL = {"railwright.io/fabric": "roce"}
MISSPELT = {"railwright.io/fabrik": "roce"}


def build(
    name: str = "p",
    *,
    owner: dict | None = None,
    labels: dict | None = None,
    record: dict | None = None,
    spec: dict | None = None,
    status: dict | None = None,
) -> dict:
    """Return an object of namespace prod; with a record it is an injected pod."""
    metadata = {
        "name": name,
        "namespace": "prod",
        "uid": name,
        "labels": labels or {},
        "annotations": {"railwright.io/injection": json.dumps(record)} if record else {},
        "ownerReferences": [{**owner, "controller": True}] if owner else [],
    }
    return {"metadata": metadata, "spec": spec or {}, "status": status or {}}


def keep(cluster, pod: dict) -> None:
    cluster.keep(f"{PODS}/{pod['metadata']['name']}", pod)


def let_answer(cluster, name: str = "p", node: str = "n", **gang) -> None:
    """Let the extender answer about a pod whose gang has this state."""
    answer = {"pod": f"prod/{name}", "node": node, "gang": {**GANG, **gang}, "scheduler": "volcano"}
    cluster.proxied = {name: (200, answer)}


def fail(message: str) -> dict:
    """Return an error of the API server's proxy."""
    return {"kind": "Status", "message": message}


@pytest.mark.parametrize(
    ("status", "answer", "cause"),
    [
        (
            404,
            {"error": {"reason": "no opted-in pod prod/p is known here"}},
            "the API server's proxy: no opted-in pod prod/p is known here (status 404)",
        ),
        (
            403,
            fail('services "https:railwright-extender:8713" is forbidden'),
            "you may not ask the extender; Role railwright-user of namespace railwright-system allows it",
        ),
        (
            404,
            fail('services "https:railwright-extender:8713" not found'),
            "no extender is installed in namespace railwright-system",
        ),
        (
            503,
            fail("error trying to reach service: connection refused"),
            (
                "the API server's proxy cannot reach the extender: error trying to reach service: connection refused; "
                "to see why: railwright check"
            ),
        ),
        (
            200,
            {"pod": 7},
            (
                "the API server's proxy responds, but not as railwright's extender does; check `server:` in the "
                "kubeconfig"
            ),
        ),
    ],
)
async def test_explain_names_the_cause_and_shows_the_pod_if_the_extender_does_not_answer(
    cluster, run, status, answer, cause
):
    keep(cluster, build(record=RECORD))
    cluster.proxied = {"p": (status, answer)}
    code, out, err = await run("explain", "pod/p", "-n", "prod")
    assert (code, "Pod prod/p" in out) == (0, True)
    assert err == f"railwright: without scores of nodes: {cause}\n"


FAILURE = "railwright preflight failed: rail0 mlx5_9: device not found (found: mlx5_0)"


@pytest.mark.parametrize("form", ["pod/llm-1", "job/llm"])
@pytest.mark.parametrize("phase", ["Failed", "Pending"])  # by restartPolicy
async def test_explain_shows_the_message_of_a_failed_preflight_and_exits_with_1(cluster, run, form, phase):
    labels = {"batch.kubernetes.io/job-name": "llm", **LABEL}
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": f"{FAILURE}\n"}}
    states = {"state": ended} if phase == "Failed" else {"state": {"waiting": {}}, "lastState": ended}
    stopped = {"phase": phase, "initContainerStatuses": [{"name": "railwright-preflight", **states}]}
    for name, status in (("llm-0", {"phase": "Running"}), ("llm-1", stopped)):
        record = {**RECORD, "added": ["found"]}
        keep(cluster, build(name, labels=labels, record=record, spec={"nodeName": "n"}, status=status))
    if phase == "Pending":
        let_answer(cluster, "llm-1", state="placed", placed=1)
    code, out, err = await run("explain", form, "-n", "prod")
    assert code == 1
    assert out.splitlines()[1] == FAILURE
    assert "kubectl exec" not in out
    assert ("ended (Failed)" in out, "placed" in out) == (phase == "Failed", phase == "Pending")
    chosen = "railwright: job/llm: pod llm-1, the first whose preflight failed of 2 pods\n"
    assert err == (chosen if form == "job/llm" else "")
    assert any("/proxy/" in path for _, path in cluster.asked) == (phase == "Pending")


@pytest.mark.parametrize(
    ("successor", "chosen"),
    [
        ({"phase": "Pending"}, "llm-0-second, the first whose preflight failed of 2 pods"),
        ({"phase": "Running"}, "llm-0-new, the first that has not ended of 1 pod"),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [{"name": "railwright-preflight", "state": {"terminated": {"exitCode": 0}}}],
            },
            "llm-0-new, the first that is not running of 1 pod",
        ),
    ],
    ids=["not tried yet", "running", "passed"],
)
async def test_the_failed_preflight_of_a_pod_is_shown_until_its_successor_has_passed_it(
    cluster, run, successor, chosen
):
    labels = {"batch.kubernetes.io/job-name": "llm", "batch.kubernetes.io/job-completion-index": "0", **LABEL}
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": f"{FAILURE}\n"}}
    stopped = {"phase": "Failed", "initContainerStatuses": [{"name": "railwright-preflight", "state": ended}]}
    for name, status, minute in (("second", stopped, 2), ("first", stopped, 1), ("new", successor, 3)):
        pod = build(f"llm-0-{name}", labels=labels, record=RECORD, spec={"nodeName": "n"}, status=status)
        pod["metadata"]["creationTimestamp"] = f"2026-11-30T20:0{minute}:00Z"
        keep(cluster, pod)
    let_answer(cluster, "llm-0-new", state="placed", placed=1)
    code, _, err = await run("explain", "job/llm", "-n", "prod")
    assert (code, f"railwright: job/llm: pod {chosen}\n" in err) == (1 if "failed" in chosen else 0, True), err


@pytest.mark.parametrize("warning", ["; warning: NCCL_IB_HCA: mlx5_9 selects no device (found: mlx5_0)", ""])
async def test_the_message_of_a_preflight_that_passed_is_shown_if_it_has_a_warning(cluster, run, warning):
    message = f"railwright preflight 1 rail ready: rail0 mlx5_0{warning}"
    passed = {"terminated": {"exitCode": 0, "reason": "Completed", "message": f"{message}\n"}}
    statuses = [{"name": "railwright-preflight", "state": passed}]
    keep(cluster, build(labels=LABEL, record=RECORD, status={"phase": "Running", "initContainerStatuses": statuses}))
    let_answer(cluster, "p", state="placed", placed=1)
    code, out, _ = await run("explain", "pod/p", "-n", "prod")
    assert (code, message in out.splitlines()) == (0, bool(warning))


@pytest.mark.parametrize(
    ("has_policy", "warnings"),
    [
        (True, ["N09: container c: NCCL_IB_SL=99: ", "N15: container c: NCCL_IB_HCA=mlx5_9: "]),
        (False, ["N09: container c: NCCL_IB_SL=99: "]),
    ],
)
async def test_explain_shows_the_admission_warnings_of_a_running_pod(cluster, run, has_policy, warnings):
    added = {"added": ["env.NCCL_IB_TC"], "kept": {"c": ["NCCL_IB_HCA"]}, "containers": ["c"]}
    record = {**RECORD, "rails": ["rail0", "rail1"], **added}
    values = {"NCCL_IB_HCA": "mlx5_9", "NCCL_IB_SL": "99", "NCCL_IB_TC": "999"}  # the last one is the policy's
    limits = {"nvidia.com/gpu": "8", "nvidia.com/mlx5_0": "1", "nvidia.com/mlx5_1": "1"}
    env = [{"name": name, "value": value} for name, value in values.items()]
    containers = [{"name": "c", "env": env, "resources": {"limits": limits}}]
    keep(cluster, build(labels=LABEL, record=record, spec={"nodeName": "n", "containers": containers}))
    if has_policy:
        text = POLICY.replace("    rails:", "    env: {NCCL_IB_TC: '999'}\n    rails:")
        text = re.sub(r"resource: nvidia.com/(mlx5_\d)", r"resource: nvidia.com/\1, device: \1", text)
        keep_config_map(cluster, "railwright-policy", {"policy.yaml": text})
    let_answer(cluster, state="placed", placed=1)
    code, out, err = await run("explain", "pod/p", "-n", "prod")
    assert (code, err) == (0, "")
    lines = [line.removeprefix("warning: ") for line in out.splitlines() if line.startswith("warning: ")]
    assert [line[: len(start)] for line, start in zip(lines, warnings, strict=True)] == warnings


@pytest.mark.parametrize(("node", "state"), [("node-b", "scheduled on node-b"), ("", "not scheduled")])
async def test_explain_shows_the_state_of_the_pod_alone_if_the_extender_does_not_answer(cluster, run, node, state):
    keep(cluster, build(record=RECORD, spec={"nodeName": node}))
    cluster.proxied = {"p": (403, fail("forbidden"))}
    code, out, _ = await run("explain", "pod/p", "-n", "prod")
    assert (code, out.splitlines()[1:]) == (0, [state])
    document = json.loads((await run("explain", "pod/p", "-n", "prod", "-o", "json"))[1])
    assert document["state"] == ("scheduled" if node else "unscheduled")


async def test_injected_settings_are_shown_with_values_and_reasons(cluster, run):
    added = {"added": ["networks", "env.NCCL_IB_HCA"], "reasons": {"env.NCCL_IB_HCA": "RailDevices"}}
    skipped = {
        "mounts./dev/shm": {"code": "PathOccupied", "message": "its own"},
        "found": {"code": "LibraryNotReached", "message": "NVSHMEM needs the environment"},
    }
    record = {**RECORD, "containers": ["c"], **added, "kept": {"c": ["NCCL_DEBUG"]}, "skipped": skipped}
    spec = {"nodeName": "n", "containers": [{"name": "c", "env": [{"name": "NCCL_IB_HCA", "value": "=mlx5_0"}]}]}
    keep(cluster, build(record=record, spec=spec))
    let_answer(cluster, state="placed", placed=1)
    code, out, err = await run("explain", "pod/p", "-n", "prod")
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[:7] == [
        "Pod prod/p on node n: fabric roce, role worker, rails rail0",
        "change why",
        "annotation k8s.v1.cni.cncf.io/networks attaches the pod to the networks of rail0",
        f"c: env NCCL_IB_HCA '=mlx5_0' {codes.VariableCode.RAIL_DEVICES.meaning}",
        "kept: c: NCCL_DEBUG (the pod's own)",
        "skipped: mounts./dev/shm: its own",
        "note: NVSHMEM needs the environment",
    ]
    assert lines[7].startswith("placed: 1 of 1 pod of gang g placed")
    let_answer(cluster, state="placed", placed=1, key="prod/p", name="p")  # of a pod without a gang
    assert "placed: 1 of 1 pod placed, scheduler" in (await run("explain", "pod/p", "-n", "prod"))[1]
    document = json.loads((await run("explain", "pod/p", "-n", "prod", "-o", "json"))[1])
    assert (document["state"], document["placement"]["gang"]["state"]) == ("placed", "placed")
    assert [change["entry"] for change in document["changes"]] == ["networks", "env.NCCL_IB_HCA"]


VOLCANO = "/api/v1/namespaces/volcano-system/configmaps/volcano-scheduler-configmap"


@pytest.mark.parametrize(
    ("scheduler", "resource", "is_told"),
    [
        ("volcano", "nvidia.com/mlx5_9", True),
        ("volcano", "nvidia.com/mlx5_0", False),
        ("default-scheduler", "nvidia.com/mlx5_9", False),
    ],
)
async def test_explain_says_if_volcano_does_not_call_the_extender_for_a_pod(cluster, run, scheduler, resource, is_told):
    container = {"name": "c", "resources": {"limits": {resource: "1"}}}
    spec = {"nodeName": "n", "schedulerName": scheduler, "containers": [container]}
    keep(cluster, build(record=RECORD, spec=spec))
    arguments = {"extender.urlPrefix": "https://x:8713/volcano", "extender.managedResources": ["nvidia.com/mlx5_0"]}
    tiers = [{"plugins": [{"name": "extender", "arguments": arguments}]}]
    data = {"volcano-scheduler.conf": yaml.safe_dump({"tiers": tiers})}
    cluster.keep(VOLCANO, {"metadata": {"name": "v"}, "data": data})
    let_answer(cluster, state="placed", placed=1)
    code, out, err = await run("explain", "pod/p", "-n", "prod")
    assert (code, err) == (0, "")
    assert ("warning: Volcano places this pod without railwright's extender: Volcano asks only about" in out) == is_told


@pytest.mark.parametrize(("state", "code"), [("placed", 0), ("spread", 1), ("never", 1)])
async def test_explain_exits_with_1_for_a_gang_that_is_spread_or_never_fits(cluster, run, state, code):
    keep(cluster, build(record=RECORD))
    why = [{"code": "BetterPlan", "message": "recreated now, the gang could have 1.00"}]
    let_answer(cluster, state=state, placed=1, leaves=2, min_leaves=1, bandwidth=0.5, best=1.0, why=why)
    given, out, _ = await run("explain", "pod/p", "-n", "prod")
    assert given == code
    assert f"{state}: 1 of 1 pod of gang g placed, 2 leaves, 1 possible, modelled bandwidth 0.50, 1.00 possible" in out
    assert "because: recreated now, the gang could have 1.00\n" in out


KEY = "label railwright.io/fabrik 'roce' has no effect: railwright has no such key; did you mean"


@pytest.mark.parametrize(
    ("pod_labels", "job_labels", "said"),
    [(MISSPELT, {}, KEY), ({}, MISSPELT, f"Job late: {KEY}")],
    ids=["of the pod", "of its Job"],
)
async def test_explain_names_a_misspelt_label_of_a_pod_or_of_its_workload(cluster, run, pod_labels, job_labels, said):
    cluster.stored[f"{JOBS}/late"] = build("late", labels=job_labels, spec={"template": {"spec": {}}})
    keep(cluster, build(labels=pod_labels, owner={"apiVersion": "batch/v1", "kind": "Job", "name": "late"}))
    code, out, err = await run("explain", "pod/p", "-n", "prod")
    assert (code, err) == (0, "")
    assert out.startswith(f"Pod prod/p: did not opt in\nwarning: KeyWithoutEffect: {said}")


UNLABELLED = "not injected, because the pod has no label railwright.io/fabric;"
DEPLOYMENTS = "/apis/apps/v1/namespaces/prod/deployments"
LATE = f"{JOBS}/late"
OF_JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "late"}
OF_CRON_JOB = {"apiVersion": "batch/v1", "kind": "CronJob", "name": "nightly"}
JOB = {"template": {"spec": {}}}


@pytest.mark.parametrize(
    ("pod_labels", "objects", "said"),
    [
        (
            LABEL,
            {},
            (
                "label railwright.io/fabric 'roce', but not injected: the label was set after the pod's creation, the "
                "webhook was not called, or the policy was in mode warn; set the label in the pod template, then "
                "delete the pod, so that its controller creates it again\n"
            ),
        ),
        (
            {},
            {LATE: build("late", labels=LABEL, spec=JOB)},
            (
                f"{UNLABELLED} Job late: label railwright.io/fabric 'roce' of the Job does not reach its pods: the "
                "label was set after the Job was created, or railwright was not called then, or the policy was in mode "
                "warn; the template cannot change, so delete the Job, and create it again with the label\n"
            ),
        ),
        (
            {},
            {
                LATE: build("late", owner=OF_CRON_JOB, spec=JOB),
                "/apis/batch/v1/namespaces/prod/cronjobs/nightly": build(
                    "nightly", labels=LABEL, spec={"jobTemplate": {"spec": JOB}}
                ),
            },
            (
                f"{UNLABELLED} CronJob nightly: label railwright.io/fabric 'roce' of the CronJob has no effect: a "
                "CronJob passes no label to its pods; set the label in spec.jobTemplate"
            ),
        ),
    ],
    ids=["pod", "job", "cronjob"],
)
@pytest.mark.parametrize("form", ["pod/p", "job/late"])
async def test_explain_exits_with_1_for_an_uninjected_pod_even_if_the_extender_knows_it(
    cluster, run, pod_labels, objects, said, form
):
    cluster.stored |= objects
    keep(cluster, build(owner=OF_JOB, labels=pod_labels))
    cluster.proxied = {"p": (200, {"pod": "prod/p", "gang": GANG, "needs": ["rail0: 1 NIC"]})}
    code, out, err = await run("explain", form, "-n", "prod")
    assert code == 1
    assert out.startswith(f"Pod prod/p: {said}")
    assert "rail0" not in out
    assert "without scores" not in err


async def test_the_label_of_a_workload_in_the_core_api_group_is_read(cluster, run):
    cluster.stored["/api/v1/namespaces/prod/replicationcontrollers/late"] = build("late", labels=LABEL, spec=JOB)
    keep(cluster, build(owner={"apiVersion": "v1", "kind": "ReplicationController", "name": "late"}))
    code, out, _ = await run("explain", "rc/late", "-n", "prod")
    assert code == 1
    assert out.startswith(f"Pod prod/p: {UNLABELLED} ReplicationController late: label railwright.io/fabric 'roce' of")


CONFIG_MAPS = "/api/v1/namespaces/railwright-system/configmaps"
NAMESPACE = "/api/v1/namespaces/prod"
ACCELERATED = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
OTHER_GPU = {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"amd.com/gpu": "1"}}}]}
OPTS_IN = (
    "namespace prod opts in with label railwright.io/fabric 'roce', but no container requests an accelerator of the "
    "policy"
)
AGAIN = "delete the pod, so that its controller creates it again"
POSSIBLE = "after the pod's creation, the webhook was not called, or the policy was in mode warn"


COPY = json.dumps([{"kind": "MutatingWebhookConfiguration", "metadata": {"name": "railwright"}}])


def keep_config_map(cluster, name: str, data: dict) -> None:
    cluster.keep(f"{CONFIG_MAPS}/{name}", {"metadata": {"name": name}, "data": data})


@pytest.mark.parametrize(
    ("namespace_labels", "spec", "code", "said"),
    [
        (
            LABEL,
            ACCELERATED,
            1,
            (
                "label railwright.io/fabric 'roce' of namespace prod, but not injected: the namespace got the label "
                f"{POSSIBLE}; {AGAIN}"
            ),
        ),
        (LABEL, {}, 0, f"{OPTS_IN} (nvidia.com/gpu)"),
        (
            LABEL,
            OTHER_GPU,
            0,
            f"{OPTS_IN} (nvidia.com/gpu); if amd.com/gpu is an accelerator, let the operator add it to `accelerators`",
        ),
        ({}, ACCELERATED, 0, "did not opt in"),
        (
            None,
            ACCELERATED,
            0,
            (
                "the pod has no label railwright.io/fabric, and the labels of namespace prod, which may opt it in, "
                "cannot be read; to have the right, ask for a RoleBinding to ClusterRole view in prod"
            ),
        ),
        (None, {}, 0, "did not opt in"),
    ],
    ids=["uncalled", "no accelerator", "other GPU", "no label", "unreadable", "unreadable, no GPU"],
)
async def test_explain_exits_with_1_for_an_uninjected_pod_that_its_namespace_opts_in(
    cluster, run, namespace_labels, spec, code, said
):
    keep_config_map(cluster, "railwright-policy", {"policy.yaml": POLICY})
    cluster.keep(NAMESPACE, {"metadata": {"name": "prod", "labels": namespace_labels or {}}})
    if namespace_labels is None:
        cluster.fault = lambda request: 403 if request.path == NAMESPACE else None
    keep(cluster, build(spec=spec))
    given, out, _ = await run("explain", "pod/p", "-n", "prod")
    assert (given, out.splitlines()[0]) == (code, f"Pod prod/p: {said}")


@pytest.mark.parametrize(
    ("of_pod", "of_namespace", "said"),
    [
        ("rocee", "", "label railwright.io/fabric 'rocee' is not a fabric of the policy; allowed are roce, none"),
        ("", "rocee", "label railwright.io/fabric of namespace prod 'rocee' is not a fabric of the policy; allowed "),
        ("roce", "", "fabric roce may not be used in namespace prod: its labels do not"),
    ],
)
async def test_explain_pod_names_a_label_that_admission_rejects_as_the_cause(cluster, run, of_pod, of_namespace, said):
    keep_config_map(cluster, "railwright-policy", {"policy.yaml": f"{POLICY}    namespaces: {{team: a}}\n"})
    labels = [{"railwright.io/fabric": label} if label else {} for label in (of_pod, of_namespace)]
    cluster.keep(NAMESPACE, {"metadata": {"name": "prod", "labels": labels[1]}})
    keep(cluster, build(labels=labels[0], spec=ACCELERATED))
    code, out, _ = await run("explain", "pod/p", "-n", "prod")
    assert (code, out.startswith(f"Pod prod/p: not injected: {said}")) == (1, True)
    assert out.splitlines()[0].endswith(f"; correct this, then {AGAIN}")


@pytest.mark.parametrize("pod_labels", [LABEL, {}], ids=["pod", "job"])
@pytest.mark.parametrize(
    ("name", "data", "fix"),
    [
        ("railwright-disabled", {"objects.json": COPY}, policy_sources.DISABLED),
        ("railwright-policy", {"policy.yaml": f"{POLICY}mode: warn\n"}, policy_sources.UNENFORCED),
    ],
    ids=["disabled", "mode warn"],
)
async def test_the_fix_for_a_pod_created_while_nothing_is_injected_is_to_enable_or_enforce_injection(
    cluster, run, pod_labels, name, data, fix
):
    cluster.stored[LATE] = build("late", labels=LABEL, spec=JOB)
    keep(cluster, build(owner=OF_JOB, labels=pod_labels))
    keep_config_map(cluster, name, data)
    code, out, _ = await run("explain", "job/late", "-n", "prod")
    assert code == 1
    assert f"{fix}{', then delete the pod' if pod_labels else '; Job late: '}" in out
    assert fix in json.loads((await run("explain", "pod/p", "-n", "prod", "-o", "json"))[1])["uninjected"]


async def test_a_pod_is_explained_even_if_its_job_cannot_be_decoded(cluster, run):
    cluster.stored[LATE] = {"spec": float("nan")}  # no JSON
    keep(cluster, build(owner=OF_JOB))
    code, out, _ = await run("explain", "pod/p", "-n", "prod")
    assert (code, "did not opt in" in out) == (0, True)


async def test_a_pod_is_explained_without_the_right_to_read_whether_railwright_is_disabled(cluster, run):
    keep(cluster, build(labels=LABEL))
    cluster.fault = lambda request: 500 if request.path.endswith("/railwright-disabled") else None
    code, out, _ = await run("explain", "pod/p", "-n", "prod")
    assert (code, "but not injected" in out) == (1, True)


def build_event(reason: str, kind: str, name: str, minute: int, message: str) -> dict:
    event = {"reason": reason, "message": message, "lastTimestamp": f"2026-11-30T20:{minute:02}:00Z", "type": "Warning"}
    return {"metadata": {"name": f"{name}.{minute}"}, "involvedObject": {"kind": kind, "name": name}, **event}


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"phase": "Pending"}, "not running: Event FailedCreatePodSandBox of 2026-11-30T20:02:00Z: multus: no CNI "),
        ({"phase": "Running"}, ""),
        (
            {
                "phase": "Pending",
                "initContainerStatuses": [{"name": "railwright-preflight", "state": {"terminated": {"exitCode": 1}}}],
            },
            "init container railwright-preflight failed with exit code 1",
        ),
    ],
    ids=["starting", "running", "failed preflight"],
)
async def test_the_newest_warning_of_kubelet_is_shown_for_a_bound_pod_that_does_not_run(cluster, run, status, said):
    keep(cluster, build("llm-1", labels=LABEL, record=RECORD, spec={"nodeName": "n"}, status=status))
    let_answer(cluster, "llm-1", state="placed")
    cluster.lists[EVENTS] = [
        build_event("FailedMount", "Pod", "llm-1", 1, "older"),
        build_event("FailedCreatePodSandBox", "Pod", "llm-1", 2, "multus: no\nCNI " + 600 * "x"),
    ]
    selectors = []
    cluster.fault = lambda asked: selectors.append(asked.query["fieldSelector"]) if asked.path == EVENTS else None
    code, out, _ = await run("explain", "pod/llm-1", "-n", "prod")
    assert said in out
    assert not any(unwanted in out for unwanted in ("older", 520 * "x"))
    assert "placed: 0 of 1 pod" in out
    is_read = said.startswith("not running")
    assert selectors == (["involvedObject.uid=llm-1,source=kubelet,type=Warning"] if is_read else [])
    assert ("not running" in out) == is_read
    cluster.fault = lambda asked: 403 if asked.path == EVENTS else None
    unread = await run("explain", "pod/llm-1", "-n", "prod")
    assert (unread[0], "placed: 0 of 1 pod" in unread[1], "not running" in unread[1]) == (code, True, False)


@pytest.mark.parametrize("words", [("explain", "job/llm"), ("verify", "job/llm"), ("explain", "gang/job/llm")])
async def test_the_newest_rejection_is_shown_for_a_job_without_pods(cluster, run, words):
    refusal = "Job prod/llm: label railwright.io/fabric 'g' is not a fabric"
    cluster.lists[PODS] = []
    cluster.lists[EVENTS] = [
        build_event("FabricRefused", "Job", "llm-workers-0", 9, "of a JobSet llm"),
        build_event("FailedCreate", "Job", "llm", 1, "exceeded quota"),
        build_event("FabricRefused", "Job", "llm", 2, refusal),
        build_event("FabricRefused", "Job", "llm2", 3, "another"),
        build_event("Unhealthy", "Job", "llm", 4, "another reason"),
    ]
    code, _, err = await run(*words, "-n", "prod")
    said = f"railwright: {words[1]}: no pod in namespace prod belongs to it; Event"
    assert (code, err) == (2, f"{said} FabricRefused at 2026-11-30T20:02:00Z of Job llm: {refusal}\n")
    del cluster.lists[EVENTS][1:3]
    assert (await run(*words, "-n", "prod"))[2] == (
        f"{said} FabricRefused at 2026-11-30T20:09:00Z of Job llm-workers-0: of a JobSet llm; if Job llm-workers-0 "
        "belongs to another job, the pods of yours may have been deleted, or -n NAMESPACE is missing\n"
    )
    # no right to read Events and workloads
    cluster.fault = lambda request: 403 if request.path.startswith((EVENTS, "/apis/")) else None
    _, _, err = await run(*words, "-n", "prod")
    assert "belongs to it; check the name, or select another namespace with -n NAMESPACE. If its pods were" in err


@pytest.mark.parametrize(
    ("form", "path", "spec", "said"),
    [
        ("job", f"{JOBS}/llm", {"suspend": True}, "Job llm is suspended, so its controller creates no pods until"),
        (
            "job",
            f"{JOBS}/llm",
            {},
            "Job llm exists, but its controller has created no pod yet, or its pods were deleted",
        ),
        ("job", f"{JOBS}/other", {}, "there is no Job.batch of this name. Check kind and name, or select another"),
        (
            "pytorchjob",
            "/apis/kubeflow.org/v1/namespaces/prod/pytorchjobs/llm",
            {"runPolicy": {"suspend": True}},
            "PyTorchJob llm is suspended, ",
        ),
        ("replicationcontroller", f"{JOBS}/llm", {}, "there is no ReplicationController of this name. "),
        ("pytorchjob", f"{JOBS}/llm", {}, "check the name, or select another namespace"),  # no right to read it
        ("deploy", f"{DEPLOYMENTS}/llm", {"replicas": 0}, "Deployment llm has replicas: 0, so its controller creates"),
        ("deploy", f"{DEPLOYMENTS}/other", {}, "there is no Deployment.apps of this name. "),
        (
            "vcjob",
            "/apis/batch.volcano.sh/v1alpha1/namespaces/prod/jobs/llm",
            {},
            "Job llm exists, but its controller has created no pod yet, or its pods were deleted after it finished. Vo",
        ),
    ],
)
async def test_explain_tells_a_missing_workload_from_a_suspended_one_and_one_without_pods(
    cluster, run, form, path, spec, said
):
    cluster.lists[PODS] = cluster.lists[EVENTS] = []
    cluster.stored[path] = {"metadata": {"name": path.rpartition("/")[2]}, "spec": spec}
    denied = ("/apis/batch.volcano.sh", "/apis/kubeflow.org")
    cluster.fault = lambda request: 403 if request.path.startswith(denied) and request.path != path else None
    code, _, err = await run("explain", f"{form}/llm", "-n", "prod")
    assert code == 2
    assert err.startswith(f"railwright: {form}/llm: no pod in namespace prod belongs to it; {said}")
    if "PyTorchJob" in said:
        assert err.endswith("To see why: kubectl describe pytorchjob.kubeflow.org llm -n prod\n")


@pytest.mark.parametrize(
    ("nodes", "chosen"),
    [
        (("a", "", ""), "pod llm-1, the first that waits of 3 pods"),
        (("a", "b"), "pod llm-0, the first that has not ended of 2 pods"),
        (("a", "b pending"), "pod llm-1, the first that is not running of 2 pods"),
    ],
)
async def test_a_job_is_explained_by_the_first_pod_that_waits_or_is_not_running(cluster, run, nodes, chosen):
    labels = {"batch.kubernetes.io/job-name": "llm", **LABEL}
    for rank, place in enumerate(nodes):
        node, _, phase = place.partition(" ")
        status = {"phase": phase.capitalize() or "Running"}
        keep(cluster, build(f"llm-{rank}", labels=labels, record=RECORD, spec={"nodeName": node}, status=status))
    name = chosen.split(",")[0].removeprefix("pod ")
    let_answer(cluster, name, node="")
    code, _, err = await run("explain", "job/llm", "-n", "prod")
    assert code == 0, err
    assert f"railwright: job/llm: {chosen}\n" in err
    assert [path.rpartition("/")[2] for _, path in cluster.asked if "/proxy/" in path] == [name]
    code, _, err = await run("explain", "job/none", "-n", "prod")
    assert (code, "job/none: no pod in namespace prod belongs to it" in err) == (2, True)


JOB_SET = "jobset.sigs.k8s.io/jobset-name"
NAMESAKES = {  # pod: labels, and the Job that created it
    "llm-workers-0-x": ({JOB_SET: "llm", "jobset.sigs.k8s.io/job-index": "0"}, "llm-workers-0"),
    "llm-0-x": ({}, "llm"),
}


@pytest.mark.parametrize(
    ("words", "has_pod", "chosen"),
    [
        ("job/llm", True, "llm-0-x"),
        ("jobset/llm", True, "llm-workers-0-x"),
        ("gang/llm", True, "llm-0-x"),
        ("gang/llm/0", True, "llm-workers-0-x"),
        ("gang/jobset/llm/0", True, "llm-workers-0-x"),
        ("job/llm", False, ""),  # as if its pod had been rejected
        ("jobset/llm", False, "llm-workers-0-x"),
    ],
)
async def test_explain_tells_a_job_from_a_jobset_of_the_same_name(cluster, run, words, has_pod, chosen):
    for pod, (labels, job) in NAMESAKES.items():
        if has_pod or job != "llm":
            owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job}
            tags = {**labels, "batch.kubernetes.io/job-name": job, **LABEL}
            keep(cluster, build(pod, owner=owner, labels=tags))
    cluster.lists[EVENTS] = []
    cluster.stored[f"{JOBS}/llm"] = {"metadata": {"name": "llm"}, "spec": {}}
    code, _, err = await run("explain", words, "-n", "prod")
    if chosen:
        assert (code, f"{words}: pod {chosen}, the first that waits of 1 pod\n" in err) == (1, True), err
    else:
        assert (code, "belongs to it; Job llm exists, but its controller has created no pod yet" in err) == (2, True), (
            err
        )


async def test_pods_that_are_being_deleted_do_not_count_beside_those_of_the_new_job(cluster, run):
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "llm"}
    for pod, uid in (("llm-0-old", "u1"), ("llm-0-new", "u2")):
        keep(cluster, build(pod, owner={**owner, "uid": uid}, labels=LABEL))
    cluster.stored[f"{PODS}/llm-0-old"]["metadata"]["deletionTimestamp"] = "2026-12-01T10:00:00Z"
    assert "pod llm-0-new, the first that waits of 1 pod\n" in (await run("explain", "job/llm", "-n", "prod"))[2]
    del cluster.stored[f"{PODS}/llm-0-new"]
    assert "pod llm-0-old, the first that waits of 1 pod\n" in (await run("explain", "job/llm", "-n", "prod"))[2]


OF_REPLICA_SET = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "llm-5d8f"}
OF_STATEFUL_SET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "llm"}


@pytest.mark.parametrize(
    ("kind", "owner", "labels"),
    [
        ("deployment", OF_REPLICA_SET, {"pod-template-hash": "5d8f"}),
        ("deployments.apps", OF_REPLICA_SET, {"pod-template-hash": "5d8f"}),
        ("deploy", OF_REPLICA_SET, {"pod-template-hash": "5d8f"}),
        ("statefulset", OF_STATEFUL_SET, {}),
        ("sts", OF_STATEFUL_SET, {}),
        ("pytorchjob", None, {"training.kubeflow.org/job-name": "llm"}),
        ("jobset", None, {"jobset.sigs.k8s.io/jobset-name": "llm"}),
    ],
)
async def test_a_workload_of_any_kind_is_explained_by_its_first_pod(cluster, run, kind, owner, labels):
    keep(cluster, build("llm-5d8f-x2k4p", owner=owner, labels={**labels, **LABEL}))
    code, out, err = await run("explain", f"{kind}/llm", "-n", "prod")
    assert (code, out.startswith("Pod prod/llm-5d8f-x2k4p: label railwright.io/fabric 'roce'")) == (1, True)
    said = f"railwright: {kind.partition('.')[0]}/llm: pod llm-5d8f-x2k4p, the first that waits of 1 pod\n"
    assert err == said
