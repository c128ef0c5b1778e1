"""Meaning of an API server's answers to a dry run; tests/integration/test_tenant.py has the real one's answers."""

import asyncio
import contextlib
import json

import api_stub
import pytest
from aiohttp import web

from railwright.cli import __main__ as command_line
from railwright.cli import output
from railwright.cli.explanation import dry_runs, previews, templates
from railwright.cluster import errors

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "prod", "labels": {"railwright.io/fabric": "f"}},
    "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]},
}
TEMPLATE = templates.Template("Pod prod/p", "", 1, "prod", POD)
NOT_INJECTED = (
    "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'rdma-injected' with binding 'rdma-injected' denied request: "
    "NotInjected: pod prod/p requests fabric f"
)
UNCALLED = 'Internal error occurred: failed calling webhook "pods.railwright.io": no endpoints available'
REFUSAL = f"Pod prod/p: {'a long list of rails, ' * 100}end"


def refuse(status: int, message: str):
    return lambda _: web.json_response({"kind": "Status", "status": "Failure", "message": message}, status=status)


POLICY_PATH = "/api/v1/namespaces/railwright-system/configmaps/railwright-policy"


@contextlib.asynccontextmanager
async def serving(tmp_path, answer, policy: str = "", objects: dict[str, dict] | None = None):
    """Yield a client of an API server that answers each creation of a pod by `answer(pod)`, and its list of queries.

    `policy` is the content of the ConfigMap; "" without one. `objects` are the answers at other paths.
    """
    queries: list[str] = []
    stored = (
        {POLICY_PATH: {"metadata": {"name": "railwright-policy"}, "data": {"policy.yaml": policy}}} if policy else {}
    )
    stored |= objects or {}

    async def respond(request: web.Request) -> web.Response:
        if request.method == "POST":
            assert request.path == "/api/v1/namespaces/prod/pods"
            queries.append(request.query_string)
            return answer(await request.json())
        found = stored.get(request.path, api_stub.status(404))
        return web.json_response(found, status=found.get("code", 200))

    async with api_stub.serve(respond) as port, api_stub.connected(tmp_path, port) as client:
        yield client, queries


def complete(pod: dict, *, injects: bool = True) -> dict:
    """Return the pod as an API server with our webhook returns it: with a uid, defaults, and a record if it opts in."""
    opted_in = pod["metadata"]["labels"]["railwright.io/fabric"] != "none"
    metadata = {**pod["metadata"], "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    spec = {**pod["spec"], "dnsPolicy": "ClusterFirst", "volumes": [{"name": f"kube-api-access-{'abcde'[::-1]}"}]}
    if opted_in and injects:
        metadata["annotations"] = {"railwright.io/injection": "{}"}
        spec |= {"volumes": [{"name": "kube-api-access-x7k2p"}, {"name": "railwright-shm"}]}
    return {**pod, "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


async def test_a_preview_has_the_changes_and_warnings_of_a_dry_run(tmp_path):
    header = '299 - "say \\"hello\\" to C:\\\\"'
    async with serving(
        tmp_path, lambda pod: web.json_response(complete(pod), status=201, headers={"Warning": header})
    ) as (client, queries):
        answer = await dry_runs.preview_by_dry_run(client, TEMPLATE)
    assert isinstance(answer, previews.AdmissionPreview)
    assert [warning.line for warning in answer.warnings] == ['Kubernetes: say "hello" to C:\\']
    assert queries == ["dryRun=All", "dryRun=All"]
    assert answer.before["metadata"] == POD["metadata"]
    assert answer.after["metadata"] == {**POD["metadata"], "annotations": {"railwright.io/injection": "{}"}}
    assert answer.before["spec"] | {"volumes": answer.after["spec"]["volumes"]} == answer.after["spec"]
    assert answer.after["spec"]["volumes"] == [*answer.before["spec"]["volumes"], {"name": "railwright-shm"}]


@pytest.mark.parametrize(
    ("status", "message", "expected"),
    [
        (
            403,
            'pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "prod"',
            output.UnreadableError("you may not create pods in namespace prod, not even by a dry run; give the policy"),
        ),
        (500, UNCALLED, UNCALLED),
        (422, NOT_INJECTED, NOT_INJECTED),
        (
            404,
            'namespaces "prod" not found',
            output.UnreadableError("namespace prod does not exist: create it, or correct metadata.namespace or -n"),
        ),
        (403, f'admission webhook "pods.railwright.io" denied the request: {REFUSAL}', REFUSAL),
        (403, 'pods "p" is forbidden: exceeded quota', 'pods "p" is forbidden: exceeded quota'),
    ],
)
async def test_a_failed_dry_run_is_a_rejection_unless_the_right_or_the_namespace_is_missing(
    tmp_path, status, message, expected
):
    async with serving(tmp_path, refuse(status, message)) as (client, _):
        if isinstance(expected, output.UnreadableError):
            with pytest.raises(output.UnreadableError, match=str(expected)):
                await dry_runs.preview_by_dry_run(client, TEMPLATE)
        else:
            answer = await dry_runs.preview_by_dry_run(client, TEMPLATE)
            assert (answer.outcome, answer.message) == ("refused", expected)


async def test_the_diff_of_a_dry_run_shows_no_reordered_labels(run):
    def admit(pod: dict) -> web.Response:
        labels = dict(sorted(pod["metadata"]["labels"].items()))  # as the API server encodes them
        return web.json_response(complete({**pod, "metadata": {**pod["metadata"], "labels": labels}}), status=201)

    labels = {"railwright.io/fabric": "f", "volcano.sh/job-name": "j"}
    _, out, _ = await run(admit, {**POD, "metadata": {**POD["metadata"], "labels": labels}}, "explain")
    assert "- name: railwright-shm\n" in out
    assert not [line for line in out.splitlines() if line.startswith("-")]


async def test_explain_file_names_an_injection_record_that_it_cannot_read(run):
    metadata = {**POD["metadata"], "annotations": {"railwright.io/injection": "copied"}}
    code, _, err = await run(lambda pod: web.json_response(pod, status=201), {**POD, "metadata": metadata}, "explain")
    assert (code, "annotation railwright.io/injection of the dry-run pod is no record that" in err) == (2, True), err


async def test_a_dry_run_raises_if_the_api_server_answers_429_or_401_or_no_pod(tmp_path):
    for answer in (refuse(429, "busy"), refuse(401, "Unauthorized"), lambda _: web.json_response([1], status=201)):
        async with serving(tmp_path, answer) as (client, _):
            with pytest.raises(errors.ClusterError):
                await dry_runs.preview_by_dry_run(client, TEMPLATE)


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    """Return `await run(answer, pod, *words)`: run a command for the pod; return exit code, stdout and stderr."""

    async def run(
        answer, pod: dict, *words: str, policy: str = "", objects: dict | None = None, namespace="", is_given=True
    ) -> tuple[int, str, str]:
        file = tmp_path / "pod.yaml"
        file.write_text(json.dumps(pod))
        async with serving(tmp_path, answer, policy, objects):
            kubeconfig = tmp_path / "kubeconfig"
            if namespace:
                kubeconfig.write_text(
                    kubeconfig.read_text().replace("context: {", f"context: {{namespace: {namespace}, ")
                )
            monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
            given = ["--kubeconfig", str(kubeconfig)] if is_given else []
            code = await asyncio.to_thread(command_line.main, [*words, str(file), *given])
        return code, *capsys.readouterr()

    return run


POLICY = """
apiVersion: railwright.io/v1alpha1
fabrics:
  f:
    transport: roce
    rails:
    - {name: rail0, resource: nvidia.com/mlx5_0, device: mlx5_0}
"""


WARNS = {"Warning": '299 - "WouldInject: the policy is in mode warn"'}
RECORD = {
    "railwright.io/injection": json.dumps({"fabric": "f", "role": "worker", "rails": ["rail0"], "added": ["devices"]})
}
LABELS = {"railwright.io/fabric": "f"}
WOULD_REJECT = "WouldReject: the policy is in mode warn"
UNCHANGED = "mode warn: admitted unchanged; warnings say what enforcing would do"
UNWARNED = (
    "mode warn: admitted unchanged; the webhook returned no warning: enforcing the policy would add only a record, or "
    "the API server does not call the webhook; to see which: railwright check"
)
DENIED = (
    "rejected: the policy is in mode warn, and the admission policies deny pods that are not injected; until it is "
    "enforced, let the pods of the namespace pass: kubectl label namespace NAMESPACE railwright.io/uninjected=warn"
)


def build_job(metadata: dict, template: dict) -> dict:
    spec = {"template": {"metadata": template, "spec": POD["spec"]}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j", **metadata}, "spec": spec}


@pytest.mark.parametrize("mode", ["warn", "enforce"])
@pytest.mark.parametrize("denies", [True, False], ids=["with admission policies", "without"])
@pytest.mark.parametrize(
    ("tree", "is_namespace_labelled", "is_denied"),
    [
        (POD, False, True),
        (build_job({}, {"labels": LABELS}), False, True),
        (build_job({"labels": LABELS}, {}), False, False),
        (build_job({"labels": LABELS}, {}), True, True),
        (build_job({}, {}), True, True),
    ],
    ids=["on the pod", "in the template", "on the Job", "on Job and namespace", "on the namespace"],
)
async def test_explain_file_shows_how_the_api_server_admits_a_pod_in_modes_enforce_and_warn(
    run, tree, is_namespace_labelled, is_denied, denies, mode
):
    """In mode warn the label of a workload is not copied into its template, so its pods are created without it."""

    def admit(pod: dict) -> web.Response:
        labels = {
            **({"railwright.io/fabric": "f"} if is_namespace_labelled else {}),
            **pod["metadata"].get("labels", {}),
        }
        fabric = labels.get("railwright.io/fabric", "none")
        if mode == "enforce" or fabric == "none":
            keys = {"labels": labels, "annotations": {} if fabric == "none" else RECORD}
            return web.json_response({**pod, "metadata": {**pod["metadata"], **keys}}, status=201)
        if denies:
            return web.json_response({"kind": "Status", "message": NOT_INJECTED}, status=422, headers=WARNS)
        return web.json_response(pod, status=201, headers={"Warning": f'{WARNS["Warning"]}, 299 - "NotInjected by X"'})

    code, out, _ = await run(admit, tree, "explain", namespace="prod")
    outcome = out.splitlines()[1]
    if mode == "enforce":
        assert (code, outcome.startswith("injected: ")) == (0, True)
    else:
        assert (code, outcome) == ((1, DENIED) if denies and is_denied else (0, UNCHANGED))
        assert "warning: WouldInject: the policy is in mode warn\n" in out
        assert ("NotInjected by X" in out) == (not denies)


@pytest.mark.parametrize("denies", [True, False], ids=["with admission policies", "without"])
async def test_explain_file_names_both_possible_causes_if_mode_warn_has_not_warned(run, denies):
    """A launcher without accelerators would get only its record, so that the webhook does not warn."""

    def admit(pod: dict) -> web.Response:
        headers = WARNS if "resources" in pod["spec"]["containers"][0] else {}
        if denies and "railwright.io/fabric" in pod["metadata"].get("labels", {}):
            return web.json_response({"kind": "Status", "message": NOT_INJECTED}, status=422, headers=headers)
        return web.json_response(pod, status=201, headers=headers)

    container = {"name": "c", "image": "i"}
    launcher = {"spec": {"containers": [container]}}
    worker = {"spec": {"containers": [{**container, "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}}
    replicas = {"Launcher": {"replicas": 1, "template": launcher}, "Worker": {"replicas": 1, "template": worker}}
    tree = {"apiVersion": "kubeflow.org/v1", "kind": "MPIJob", "metadata": {"name": "j", "labels": LABELS}}
    tree["spec"] = {"mpiReplicaSpecs": replicas}
    code, out, _ = await run(admit, tree, "explain", policy=f"{POLICY}mode: warn\n", namespace="prod")
    assert (code, out.splitlines()[1]) == (0, UNWARNED)
    assert f"\n{UNCHANGED}\nwarning: WouldInject: " in out  # of the workers


async def test_explain_file_names_a_value_of_the_wrong_type_without_a_dry_run(run):
    pod = {**POD, "metadata": {**POD["metadata"], "annotations": {"railwright.io/rails": 1}}}
    code, out, err = await run(refuse(400, "json: cannot unmarshal number"), pod, "explain")
    assert (code, out) == (2, "")
    assert "metadata.annotations[...]: expected text, not a whole number; put it in quotes\n" in err


COPY = "/api/v1/namespaces/railwright-system/configmaps/railwright-disabled"


DISABLED = {COPY: {"metadata": {"name": "x"}, "data": {"objects.json": "[]"}}}
WEBHOOKS = {
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/railwright": {"metadata": {"name": "x"}}
}


NO_OPT_IN = "unchanged: the pod did not opt in (no label railwright.io/fabric, or `none`)"
WITHOUT_CALL = "not injected: the API server creates this pod without calling railwright's webhook"
WHILE_DISABLED = (
    "not injected: railwright is disabled (`railwright disable`), so the API server creates pods without their "
    "networks; to restore it: railwright enable"
)
OPTED_OUT = {**POD, "metadata": {**POD["metadata"], "labels": {"railwright.io/fabric": "none"}}}
EXPORTED = {**POD, "metadata": {**POD["metadata"], "annotations": RECORD}}  # of a pod injected before
MODE_WARN = f"{POLICY}mode: warn\n"


def admit_unchanged(warning: str = ""):
    headers = {"Warning": f'299 - "{warning}"'} if warning else {}
    return lambda pod: web.json_response(complete(pod, injects=False), status=201, headers=headers)


@pytest.mark.parametrize(
    ("admit", "pod", "policy", "objects", "code", "outcome", "counts"),
    [
        (refuse(422, NOT_INJECTED), POD, "", {}, 1, f"rejected: {NOT_INJECTED}", "1 rejected, 0 unchanged"),
        (refuse(422, NOT_INJECTED), POD, POLICY, {}, 1, f"rejected: {NOT_INJECTED}", "1 rejected, 0 unchanged"),
        (admit_unchanged(), POD, "", {}, 1, WITHOUT_CALL, "0 rejected, 1 unchanged"),
        (admit_unchanged(), POD, POLICY, {}, 1, WITHOUT_CALL, "0 rejected, 1 unchanged"),
        (admit_unchanged(), POD, "", DISABLED, 1, WHILE_DISABLED, "0 rejected, 1 unchanged"),
        (admit_unchanged(), POD, MODE_WARN, DISABLED, 1, WHILE_DISABLED, "0 rejected, 1 unchanged"),
        (admit_unchanged(), OPTED_OUT, "", DISABLED, 0, NO_OPT_IN, "0 rejected, 1 unchanged"),
        (admit_unchanged(WOULD_REJECT), POD, "", {}, 0, UNCHANGED, "0 rejected, 1 unchanged"),
        (admit_unchanged(WOULD_REJECT), EXPORTED, "", {}, 0, UNCHANGED, "0 rejected, 1 unchanged"),
    ],
)
async def test_explain_file_says_why_a_dry_run_injected_nothing(
    run, admit, pod, policy, objects, code, outcome, counts
):
    given, out, _ = await run(admit, pod, "explain", policy=policy, objects=objects)
    assert (given, out.splitlines()[1]) == (code, outcome)
    assert out.splitlines()[-1] == f"1 template: 0 injected, {counts}"
    assert "\n+" not in out
    assert (f"warning: {WOULD_REJECT}" in out) == (outcome == UNCHANGED)


def set_variable(pod: dict, name: str, value: str) -> dict:
    container = {**pod["spec"]["containers"][0], "env": [{"name": name, "value": value}]}
    return {**pod, "spec": {"containers": [container]}}


async def test_lint_uses_the_policy_of_the_cluster(run):
    pod = set_variable(POD, "NCCL_IB_HCA", "mlx5_9")
    code, out, err = await run(refuse(403, "no dry run is needed"), pod, "lint", policy=POLICY, objects=WEBHOOKS)
    assert (code, "error N15 NCCL_IB_HCA=mlx5_9: " in out) == (1, True)
    assert err == (
        "railwright: rules that need the fabric are checked with the policy in ConfigMap "
        "railwright-system/railwright-policy\n"
        "railwright: lint reads no networks and no nodes of the cluster; to see whether admission rejects a pod "
        "because of them: railwright explain FILE\n"
    )


NAMESPACE = "/api/v1/namespaces/prod"
UNLABELLED = {**POD, "metadata": {"name": "p", "namespace": "prod"}}


def label_namespace(**labels: str) -> dict[str, dict]:
    labels = {f"railwright.io/{key}": value for key, value in labels.items()}
    return {NAMESPACE: {"metadata": {"name": "prod", "labels": labels}}}


@pytest.mark.parametrize("fabric", ["f", ""])
async def test_lint_injects_a_pod_that_its_namespace_opts_in(run, fabric):
    pod = set_variable(UNLABELLED, "NCCL_IB_HCA", "mlx5_9")
    objects = label_namespace(**({"fabric": fabric} if fabric else {}))
    policy = f"{POLICY}    mounts: {{sharedMemory: 64Gi}}\n"
    _, out, _ = await run(refuse(403, ""), pod, "lint", policy=policy, objects=objects)
    assert ("error N15 NCCL_IB_HCA=mlx5_9: " in out, "N46" in out) == (bool(fabric), not fabric)


async def test_lint_reports_that_a_misspelt_fabric_in_the_namespace_label_rejects_the_pod(run):
    objects = label_namespace(fabric="rocee")
    pod = {**POD, "metadata": {"name": "p"}}
    code, out, _ = await run(refuse(403, ""), pod, "lint", policy=POLICY, objects=objects, namespace="prod")
    assert code == 1
    assert "error M02 Pod p: label railwright.io/fabric of namespace prod 'rocee' is not a fabric of the policy" in out


async def test_lint_names_a_namespace_whose_labels_it_may_not_read(run):
    objects = {NAMESPACE: api_stub.status(403)}
    _, _, err = await run(refuse(403, ""), UNLABELLED, "lint", policy=POLICY, objects=objects)
    assert "these namespaces cannot be read, so lint assumes none of railwright's there: prod" in err


@pytest.mark.parametrize("is_given", [True, False])
async def test_lint_without_the_right_to_read_the_policy_applies_the_rules_that_need_no_fabric(run, is_given):
    pod = set_variable(POD, "NCCL_IB_TIMEOUT", "99")
    objects = {POLICY_PATH: api_stub.status(403)}
    code, out, err = await run(refuse(403, ""), pod, "lint", objects=objects, is_given=is_given)
    assert (code, "error N09 NCCL_IB_TIMEOUT=99: " in out) == (1, True)
    assert err.startswith("railwright: rules that need the fabric were not checked: you may not get configmaps/")


async def test_lint_prints_each_error_of_an_invalid_policy_in_a_line_of_its_own(run):
    invalid = "apiVersion: railwright.io/v1alpha1\nfabrics: {f: {transport: x, rails: 1}}\n"
    _, _, err = await run(refuse(403, ""), POD, "lint", policy=invalid, is_given=False)
    assert "\\n" not in err
    first, *others = err.splitlines()
    assert first.startswith("railwright: rules that need the fabric were not checked: the policy is invalid; ")
    assert len([line for line in others if "railwright-policy" in line]) == 2


LAUNCHER = {**UNLABELLED, "spec": {"containers": [{"name": "c", "image": "i"}]}}
NAMESPACE_OPTS_IN = (
    "namespace prod opts in with label railwright.io/fabric 'f', but no container requests an accelerator"
)
UNREADABLE = {NAMESPACE: api_stub.status(403)}


@pytest.mark.parametrize("policy", ["", POLICY])
@pytest.mark.parametrize(
    ("pod", "objects", "said"),
    [
        (UNLABELLED, label_namespace(fabric="f"), WITHOUT_CALL),
        (UNLABELLED, label_namespace(fabric="f") | DISABLED, WHILE_DISABLED),
        (UNLABELLED, label_namespace(fabric="none"), NO_OPT_IN),
        (UNLABELLED, label_namespace(), NO_OPT_IN),
        (LAUNCHER, label_namespace(fabric="f"), f"unchanged: {NAMESPACE_OPTS_IN}"),
        (LAUNCHER, UNREADABLE, NO_OPT_IN),
        (
            UNLABELLED,
            UNREADABLE,
            (
                "unchanged: the pod has no label railwright.io/fabric, and the labels of namespace prod, which may opt "
                "it in, cannot be read; to have the right, ask for a RoleBinding to ClusterRole view in prod"
            ),
        ),
    ],
)
async def test_explain_file_counts_the_label_of_the_namespace_as_an_opt_in(run, policy, pod, objects, said):
    def admit(created: dict) -> web.Response:
        return web.json_response(created, status=201, headers={"Warning": '299 - "NotInjected by X"'})

    code, out, _ = await run(admit, pod, "explain", policy=policy, objects=objects)
    assert (code, out.splitlines()[1][: len(said)]) == (int(said.startswith("not injected")), said)
