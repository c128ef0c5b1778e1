"""The rows of `railwright check`: a healthy cluster passes each row, and each defect fails only its own row."""

import datetime as dt

import devices
import installations
import missed_pods
import msgspec
import pytest
from broken_installations import (
    BREAKS,
    EXTENDER,
    WEBHOOK,
    add_preflights,
    assess_trees,
    change_claims,
    clear,
    drop,
    edit_policy,
    find,
    find_hook,
    find_named,
    place,
    put,
    put_hook,
    run_checks,
    share_devices,
)
from installations import NOW

from railwright.cli.checking import command, rows, snapshots
from railwright.cluster import errors
from railwright.fabric import names, views
from railwright.fabric.injection import opt_in


def list_failed(results):
    return {result.check for result in results if result.state in (rows.State.FAIL, rows.State.WARN)}


@pytest.mark.parametrize("change", [lambda _: None, installations.add_claims], ids=["", "claims"])
def test_a_healthy_cluster_passes_every_row(change):
    trees = installations.healthy()
    change(trees)
    results = run_checks(installations.build_snapshot(trees))
    assert list_failed(results) == set()
    assert {result.check for result in results} == set(command.ROWS)
    assert not any(result.hint for result in results)


@pytest.mark.parametrize("name", ["no namespace", "namespace going", "no webhook"])
def test_all_later_rows_are_skipped_if_the_namespace_or_the_webhook_is_missing(name):
    change, anchor, _, _ = BREAKS[name]
    trees = installations.healthy()
    change(trees)
    results = assess_trees(trees)
    end = next(index for index, result in enumerate(results) if result.state is rows.State.FAIL)
    assert results[end].check == anchor
    assert {result.waits_for for result in results[end + 1 :]} == {anchor}


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("no webhook", ""),
        ("open", "webhook.failurePolicy=Fail"),
        ("a mild guard", "admissionPolicy.mode=Deny"),
    ],
)
def test_a_fix_names_the_tool_that_installed_railwright_and_resets_changed_chart_values(name, setting):
    kustomized, released = installations.healthy(), installations.healthy()
    installations.install_by_helm(released)
    needed = f", which has to do what the chart's value {setting} does: docs/operator-guide.md" if setting else ""
    value = f" --set {setting}" if setting else ""
    for trees, command_line in (
        (kustomized, f"kubectl apply -k FOLDER (with your kustomization.yaml{needed})"),
        (released, f"helm upgrade fabric-team CHART -n railwright-system --reset-then-reuse-values{value}"),
    ):
        BREAKS[name][0](trees)
        results = run_checks(installations.build_snapshot(trees))
        hints = [result.hint for result in results if result.hint]
        assert hints
        assert all(command_line in hint for hint in hints), hints


@pytest.mark.parametrize(
    ("place", "key", "value", "deployer"),
    [
        ("annotations", "argocd.argoproj.io/tracking-id", "fabric:apps/Deployment:x/y", "Argo CD (Application fabric)"),
        ("labels", "argocd.argoproj.io/instance", "fabric", "Argo CD (Application fabric)"),
        ("labels", "helm.toolkit.fluxcd.io/name", "fabric", "Flux (HelmRelease fabric)"),
        ("labels", "kustomize.toolkit.fluxcd.io/name", "fabric", "Flux (Kustomization fabric)"),
    ],
)
def test_fixes_for_a_gitops_installation_change_the_repository(place, key, value, deployer):
    trees = installations.healthy()
    installations.install_by_helm(trees)  # Flux installs charts as Helm does
    for deployment in trees["deployments"]:
        deployment["metadata"].setdefault(place, {})[key] = value
    BREAKS["no webhook"][0](trees)
    [hint] = [result.hint for result in assess_trees(trees) if result.hint]
    assert f"change it in the repository that {deployer} deploys" in hint
    assert "helm upgrade" not in hint


COPY = {  # of `railwright disable`
    "metadata": {"name": "railwright-disabled"},
    "data": {"objects.json": '[{"kind":"MutatingWebhookConfiguration","metadata":{"name":"railwright"}}]'},
}


def test_check_advises_to_apply_webhooks_that_the_cluster_and_the_copy_of_disable_lack():
    """They were deleted before `railwright disable`, and `enable` refuses to restore the bindings alone."""
    trees = installations.healthy()
    trees["mutating"].clear()
    trees["disabled"] = [COPY | {"data": {"objects.json": "[]"}}]
    hint = find(trees, "webhook-entries").hint
    assert hint.startswith("apply the webhook configurations again: kubectl apply -k FOLDER")


@pytest.mark.parametrize(
    ("cleared", "rows_with_fix"),
    [
        (("mutating", "admission-bindings"), {"webhook-entries", "admission-policy"}),
        (("admission-bindings",), {"webhook-entries", "admission-policy"}),
        ((), {"webhook-entries"}),
    ],
    ids=["disabled", "stopped halfway", "enabled by an upgrade"],
)
def test_check_advises_to_run_enable_while_the_copy_of_disable_exists(cleared, rows_with_fix):
    trees = installations.healthy()
    for source in cleared:
        trees[source].clear()
    trees["disabled"] = [COPY]
    results = assess_trees(trees)
    assert {result.check: result.hint for result in results if result.hint} == dict.fromkeys(
        rows_with_fix, "railwright enable"
    )
    is_disabled = any("railwright is disabled" in result.detail for result in results)
    assert is_disabled == ("mutating" in cleared)


def tag_images(tag):
    def change(trees):
        for deployment in trees["deployments"]:
            deployment["spec"]["template"]["spec"]["containers"][0]["image"] = f"registry:5000/railwright{tag}"

    return change


def start_extender(option):
    def change(trees):
        (container,) = find_named(trees, "deployments", EXTENDER)["spec"]["template"]["spec"]["containers"]
        container["args"].append(option)

    return change


def set_complex_class(trees):
    trees["device-classes"] = [devices.GPU_CLASS, devices.build_class("dranet", 'device.driver.startsWith("dra")')]


def lose_pool_beside_other_gpus(trees):
    """Let a node lose a device pool of the fabrics, whose gpusPerNode no node has."""
    for transport in ("roce", "infiniband"):
        edit_policy(f"transport: {transport}", f"transport: {transport}\n    gpusPerNode: 4")(trees)
    for resources in find_named(trees, "nodes", "gpu-0")["status"].values():
        del resources["nvidia.com/mlx5_1"]


CLIENT_CA = "--client-ca=/tls/ca.crt"
READY = "railwright preflight 1 rail ready: rail0 mlx5_0 10.0.0.1 GID 3 mtu 9000"
WARNED = (
    "railwright preflight warning: rail0 mlx5_0: net1 has MTU 9000, less than 9216: raise the MTU"  # onFailure: warn
)
TCP = "apiVersion: railwright.io/v1alpha1\nfabrics: {plain: {transport: tcp}}\n"  # has no rails


# what is done to the cluster, the row that tells, its state, and words of its detail
OUTCOMES = [
    *((tag_images(tag), "images", "skip", "names no version") for tag in (":latest", "", "@sha256:" + "0" * 64)),
    (drop("deployments", EXTENDER), "replicas", "skip", "gangs are placed without railwright"),
    (lambda trees: trees[f"{EXTENDER}-secret"][0]["data"].pop("tls.key"), "certificates", "fail",
     "or lacks tls.crt or tls.key"),
    (share_devices, "rail-offered", "warn", "gpusPerNode: 4, but nodes have 8 of nvidia.com/gpu"),
    (installations.add_claims, "claim-devices", "ok",
     "3 nodes, 2 rails, paired by resource.kubernetes.io/pcieRoot"),
    (lambda trees: trees["pods"].append(
        installations.pod("static", {names.FABRIC: "roce"}, {"kubernetes.io/config.mirror": "x"})),
     "uninjected", "ok", "1 pod"),
    (start_extender(CLIENT_CA), "volcano-configuration", "fail",
     "which Volcano cannot present: set extender.volcano"),
    (lambda trees: trees["policy"][0]["data"].update({names.POLICY_KEY: TCP}), "volcano-configuration", "ok", "https"),
    (start_extender("--volcano-listen=:8715"), "volcano-configuration", "fail",
     "not https://railwright-extender.railwright-system.svc:8715/volcano"),
    (change_claims(set_complex_class, clear("device-slices")), "claim-devices", "fail", "no ResourceSlice has a"),
    (lose_pool_beside_other_gpus, "rail-offered", "warn", "1 of 3 nodes with accelerators: gpu-0"),
    (add_preflights(1, phase="Pending", hours=5), "preflight", "fail", "1 of 1 recent pod failed"),
    (add_preflights(1, label=""), "preflight", "fail", "1 of 1 recent pod failed"),
    (add_preflights(1, passing=2), "preflight", "warn", "1 of 3 recent pods failed"),
    (add_preflights(0, passing=2), "preflight", "ok", "2 recent pods"),
    (add_preflights(0, passing=2, message=READY), "preflight", "ok", "2 recent pods"),
    (add_preflights(0, passing=2, message=WARNED), "preflight", "warn",
     f"2 of 2 recent pods passed their preflight with a warning: {WARNED} (pod train/rank-0)"),
    (add_preflights(0, passing=1, message=f"{READY}; warning: memlock: is limited to 65536 bytes"), "preflight", "warn",
     "1 of 1 recent pod passed their preflight with a warning: railwright preflight 1 rail ready"),
    (add_preflights(1, passing=1, message=WARNED), "preflight", "warn", "1 of 2 recent pods failed"),
    (add_preflights(2, hours=2), "preflight", "skip", "no pod has started with a preflight in the last hour"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "check", "state", "words"), OUTCOMES)
def test_the_state_and_detail_of_a_row_depend_on_the_cause(change, check, state, words):
    trees = installations.healthy()
    change(trees)
    results = [result for result in assess_trees(trees) if result.check == check]
    assert [result for result in results if result.state == state and words in result.detail], results


@pytest.mark.parametrize("name", BREAKS)
def test_each_defect_fails_only_its_own_row_which_has_a_fix(name):
    change, anchor, state, words = BREAKS[name]
    trees = installations.healthy()
    change(trees)
    results = run_checks(installations.build_snapshot(trees))
    assert list_failed(results) == {anchor}, [
        (result.check, result.detail) for result in results if result.check in list_failed(results)
    ]
    matches = [result for result in results if result.check == anchor and result.state == state]
    assert matches, [(result.state, result.detail) for result in results if result.check == anchor]
    assert words in " ".join(result.detail for result in matches)
    assert all(result.hint for result in matches)


def test_every_row_fails_for_at_least_one_defect():
    elsewhere = {"api-reachable", "dry-run"}
    assert set(command.ROWS) == {anchor for _, anchor, _, _ in BREAKS.values()} | elsewhere


def test_all_rows_but_api_reachable_are_skipped_if_the_api_server_does_not_answer():
    unread = dict.fromkeys(snapshots.SOURCES, "no answer")
    results = run_checks(snapshots.Snapshot(NOW, unread=unread))
    assert [result.check for result in results if result.state is rows.State.FAIL] == ["api-reachable"]
    assert {result.detail for result in results[1:]} == {"fix api-reachable first"}


# read by the right of another source, or needed only under a policy with claims
BESIDE = {"own-pods", "disabled", "overwritten", "device-classes", "device-slices"}
# of the kinds of workloads, whose names have points, one is tried
UNREADABLE = [name for name in snapshots.SOURCES if "." not in name and name != "version"]


@pytest.mark.parametrize("source", [*UNREADABLE, "rayjobs.v1.ray.io"])
def test_rows_about_objects_that_the_caller_may_not_read_are_skipped_with_the_reason(source):
    trees = installations.healthy()
    right = f"list {source}"
    dry_runs = installations.build_snapshot(trees).dry_runs
    trees[source].clear()
    unread = {source: f"you may not {right} (403 Forbidden)"}
    results = run_checks(installations.build_snapshot(trees, unread=unread, dry_runs=dry_runs))
    assert list_failed(results) == set(), [(e.check, e.detail) for e in results if e.check in list_failed(results)]
    assert all(right in result.detail for result in results if result.unread)
    assert any(result.unread for result in results) == (source not in BESIDE)


def test_without_access_to_secrets_a_broken_ca_bundle_fails_and_a_good_one_is_skipped():
    trees = installations.healthy()
    forbidden = {f"{server}-secret": "you may not get secrets" for server in (WEBHOOK, EXTENDER)}
    for source in forbidden:
        trees[source].clear()
    results = assess_trees(trees, unread=forbidden)
    by_check = {result.check: result for result in results}
    skipped = {
        result.subject for result in results if (result.check, result.state) == ("certificates", rows.State.SKIP)
    }
    assert skipped == {WEBHOOK, EXTENDER}
    assert (by_check["ca-bundle"].state, by_check["ca-bundle"].unread) == (rows.State.SKIP, True)
    assert by_check["ca-bundle"].detail == "you may not get secrets"
    find_hook(trees, "pods.railwright.io")["clientConfig"]["caBundle"] = "eA=="
    by_check = {result.check: result for result in assess_trees(trees, unread=forbidden)}
    assert by_check["ca-bundle"].state is rows.State.FAIL


FORBIDDEN = 'pods is forbidden: User "u" cannot create resource "pods"'


@pytest.mark.parametrize(
    ("answer", "state", "words"),
    [
        (errors.ApiError(500, "InternalError", "failed calling webhook: x509", "/"), "fail", "x509"),
        (errors.UnreachableError("no answer in time"), "fail", "no answer in time"),
        (installations.admit(""), "fail", "did not call the webhook"),
        (errors.ApiError(403, "Forbidden", FORBIDDEN, "/"), "skip",
         "you may not create pods -n default; give --namespace-for-probe"),
        (installations.admit('{"policy": "sha256:0"}'), "fail", "sha256:0"),
        (installations.admit("[]"), "fail", "an unknown policy"),
    ],
)  # fmt: skip
def test_the_row_of_the_dry_run_shows_the_api_servers_answer(answer, state, words):
    trees = installations.healthy()
    admitted = installations.build_snapshot(trees).dry_runs
    results = assess_trees(trees, dry_runs=admitted | {"roce": answer})
    [result] = [result for result in results if (result.check, result.subject) == ("dry-run", "roce")]
    assert result.state == state
    assert words in result.detail
    assert list_failed(results) == ({"dry-run"} if state == "fail" else set())


WAIT = "wait for the certificates first: railwright check --wait; otherwise: railwright certs rotate"
SCALE = "kubectl -n railwright-system scale deployment"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (clear(f"{WEBHOOK}-secret"), WAIT),
        (put_hook("policy.railwright.io", "", "clientConfig", "caBundle"), WAIT),
        (put("deployments", WEBHOOK, 1, "status", "readyReplicas"),
         "; log of a running pod: kubectl -n railwright-system logs -l app"),
        (put("deployments", WEBHOOK, 0, "spec", "replicas"), f"{SCALE} {WEBHOOK} --replicas=2"),
        (put("deployments", "railwright-certs", 0, "spec", "replicas"), f"{SCALE} railwright-certs --replicas=1"),
    ],
)  # fmt: skip
def test_the_fix_of_a_row_depends_on_the_cause(change, words):
    trees = installations.healthy()
    change(trees)
    [hint] = [result.hint for result in assess_trees(trees) if result.hint]
    assert words in hint


ABSENT = 'Back-off pulling image "r/railwright:9": ErrImagePull: r/railwright:9: not found'
REFUSED = 'Back-off pulling image "r/railwright:9": ErrImagePull: 401 Unauthorized'


def unready(*servers):
    return [put("deployments", server, 0, "status", "readyReplicas") for server in servers]


def wait_for_image(reason, message, pods=slice(None)):
    """Let these pods of all servers wait for their image."""

    def change(trees):
        for pod in trees["own-pods"][pods]:
            waiting = {"reason": reason, "message": message}
            pod["status"] = {"containerStatuses": [{"state": {"waiting": waiting}}]}

    return change


@pytest.mark.parametrize(
    ("changes", "is_lasting"),
    [
        ([edit_policy("transport: roce", "transport: rocev2"), *unready(WEBHOOK)], True),
        ([clear("policy"), *unready(WEBHOOK)], False),  # the next command, or Argo CD, creates it
        ([clear("mutating")], False),
        ([clear("mutating"), lambda trees: trees["disabled"].append(COPY)], True),
        ([clear("admission-bindings")], False),
        ([*unready(WEBHOOK, "railwright-certs"), clear(f"{WEBHOOK}-secret"),
          wait_for_image("ImagePullBackOff", ABSENT)], True),
        ([*unready(WEBHOOK), wait_for_image("InvalidImageName", "couldn't parse image name")], True),
        ([*unready(WEBHOOK), wait_for_image("ImagePullBackOff", REFUSED)], False),  # its Secret may be created
        ([*unready(WEBHOOK), wait_for_image("ImagePullBackOff", ABSENT, slice(1))], False),  # another image comes up
        ([clear(f"{WEBHOOK}-secret")], False),
    ],
    ids=[
        *("invalid policy", "no policy", "no webhook configuration", "railwright is disabled", "no bindings"),
        *("absent image", "malformed image name", "image that needs a Secret", "one pod without image", "no Secret"),
    ],
)  # fmt: skip
def test_a_failure_counts_as_lasting_unless_a_controller_or_the_next_installation_step_ends_it(changes, is_lasting):
    trees = installations.healthy()
    for change in changes:
        change(trees)
    failed = [result for result in assess_trees(trees) if result.state is rows.State.FAIL]
    assert failed
    assert all(result.lasting for result in failed) == is_lasting


def hide_schedulers(trees):
    """Remove Volcano, as where kube-scheduler is configured by a file."""
    trees["volcano"].clear()


UNSEEN = (
    "the configuration of this scheduler is a file, so whether it calls the extender is not known. It does if the "
    "extender's metric railwright_requests_total grows while a pod of this fabric is placed"
)


@pytest.mark.parametrize(
    ("changes", "state", "detail"),
    [
        ((place("a", "volcano", "nvidia.com/mlx5_0"),), "ok", "volcano, 1 pod"),
        (
            (place("a", "volcano", "nvidia.com/mlx5_0"), place("b", "volcano", "nvidia.com/mlx5_0"),
             place("c", "", "nvidia.com/mlx5_0")),
            "warn", "default-scheduler has placed train/c, but the scheduler of these nodes is volcano",
        ),
        ((hide_schedulers,), "skip", "no pod with accelerators runs there"),
        ((hide_schedulers, place("a", "site"), place("b", "site")), "skip", f"site, 2 pods; {UNSEEN}"),
        ((edit_policy("preset: topograph", "preset: topograph, schedulerName: site"), place("a", "site")), "skip",
         f"site, 1 pod; {UNSEEN}"),
        ((hide_schedulers, place("a", "site"), place("b", "other", injected=False)), "warn",
         "other has placed train/b, but the scheduler of these nodes is site"),
        ((edit_policy("preset: topograph", "preset: topograph, schedulerName: railwright-scheduler"),
          place("a", "volcano", "nvidia.com/mlx5_0")), "warn",
         "volcano has placed train/a, but the scheduler of these nodes is railwright-scheduler"),
        ((drop("deployments", EXTENDER), place("a", "site")), "skip",
         "Deployment railwright-extender is not installed: gangs are placed without railwright"),
    ],
)  # fmt: skip
def test_pods_of_another_scheduler_on_the_nodes_of_a_fabric_are_named(changes, state, detail):
    trees = installations.healthy()
    for change in changes:
        change(trees)
    [result] = [row for row in assess_trees(trees) if row.check == "schedulers" and row.subject in ("roce", "")]
    assert (result.state, result.detail) == (state, detail)


def test_a_server_that_receives_nothing_about_some_kinds_is_named_with_a_command_that_applies_its_roles():
    trees = installations.healthy()
    installations.install_by_helm(trees)
    stale = {f"{WEBHOOK}-0": [], f"{WEBHOOK}-1": ["namespaces", "nodes"]}
    results = run_checks(installations.build_snapshot(trees, stale_kinds=stale))
    [row] = [result for result in results if result.state is not rows.State.OK and result.hint]
    assert (row.check, row.subject, row.state) == ("replicas", WEBHOOK, rows.State.WARN)
    assert (
        row.detail == f"{WEBHOOK}-1 has received nothing about namespaces, nodes from the API server for five minutes"
    )
    assert "kubectl -n railwright-system logs -l app.kubernetes.io/" in row.hint
    assert "apply the roles again: helm upgrade fabric-team CHART" in row.hint
    stale = {f"{WEBHOOK}-0": ["resourceclaimtemplates"]}
    [row] = [result for result in assess_trees(trees, stale_kinds=stale) if result.hint]
    assert row.hint.endswith(" --reset-then-reuse-values --set webhook.claims=true")


def build_silent_extender(minutes, scheduler="volcano"):
    """Return a cluster with a pod placed so many minutes ago, and an extender that is ready for half an hour."""
    trees = installations.healthy()
    place("a", scheduler, "nvidia.com/mlx5_0")(trees)
    placed, ready, start = (f"{NOW - dt.timedelta(minutes=ago):%Y-%m-%dT%H:%M:%SZ}" for ago in (minutes, 30, 600))
    trees["pods"][-1]["status"] = {
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": placed}]
    }
    for pod in trees["own-pods"]:
        pod["status"] |= {"startTime": start}  # its container has started again since
        pod["status"]["conditions"][0]["lastTransitionTime"] = ready
    return trees


@pytest.mark.parametrize(
    ("minutes", "counts", "words"),
    [
        (20, (0, 0), "the extender's pods have answered no scheduler, but these pods were placed after "),
        (20, (0, 7), ""),
        (20, (0,), ""),  # the metrics of the other replica could not be read
        (29.5, (0, 0), ""),  # a replica that was replaced then may have answered
        (40, (0, 0), ""),  # the container may have answered before it started again
    ],
)
def test_pods_that_were_placed_while_no_scheduler_asked_the_extender_are_named(minutes, counts, words):
    trees = build_silent_extender(minutes)
    answered = {f"{EXTENDER}-{index}": count for index, count in enumerate(counts)}
    results = assess_trees(trees, scheduler_requests=answered)
    [result] = [row for row in results if row.check == "schedulers" and row.subject == "roce"]
    assert result.state == ("warn" if words else "ok")
    if words:
        assert result.detail.startswith(words)
        assert result.detail.endswith(": train/a")
        assert "railwright policy scheduler-config" in result.hint


def test_another_scheduler_that_places_pods_of_the_fabric_is_named():
    trees = build_silent_extender(20, scheduler="default-scheduler")
    results = assess_trees(trees, scheduler_requests={f"{EXTENDER}-{index}": 0 for index in range(2)})
    [result] = [row for row in results if row.check == "schedulers" and row.subject == "roce"]
    assert "have answered no scheduler, but these pods were placed after " in result.detail
    assert result.detail.endswith("; default-scheduler has placed train/a, but the scheduler of these nodes is volcano")


@pytest.mark.parametrize(
    ("mode", "action", "expected"),
    [
        ("enforce", "Warn", {"admission-policy": "warn", "uninjected": "fail"}),
        ("warn", "Warn", {"policy": "warn"}),
        ("warn", "Deny", {"policy": "warn", "admission-policy": "fail"}),
    ],
)
def test_check_warns_of_mode_warn_and_does_not_name_its_uninjected_pods(mode, action, expected):
    trees = installations.healthy()
    edit_policy("fabrics:", f"mode: {mode}\nfabrics:")(trees)
    trees["pods"] = [installations.pod("a", {names.FABRIC: "default"}, {}, gpus=8)]
    for binding in trees["admission-bindings"]:
        binding["spec"]["validationActions"] = [action]
    problems = {result.check: result for result in assess_trees(trees) if result.hint}
    assert {check: result.state for check, result in problems.items()} == expected
    if action == "Deny":
        assert "Until then let opted-in pods pass" in problems["admission-policy"].hint


def test_only_rows_that_depend_on_a_server_are_skipped_while_it_is_not_ready():
    trees = installations.healthy()
    put("deployments", EXTENDER, 0, "status", "readyReplicas")(trees)
    assert not [result for result in assess_trees(trees) if result.waits_for]
    put("deployments", WEBHOOK, 0, "status", "readyReplicas")(trees)
    assert {result.check for result in assess_trees(trees) if result.waits_for == "replicas"} == {"dry-run"}


def test_the_row_rail_networks_fails_only_if_a_rail_names_a_missing_network():
    trees = installations.healthy()
    trees["networks"].clear()
    assert list_failed(assess_trees(trees)) == {"rail-networks"}
    edit_policy("network: prod/rail0, ", "")(trees)
    edit_policy("network: prod/rail1, ", "resource: nvidia.com/mlx5_1, ")(trees)
    assert list_failed(assess_trees(trees)) == set()


def test_check_passes_without_an_extender():
    trees = installations.healthy()
    drop("deployments", EXTENDER)(trees)
    clear(f"{EXTENDER}-secret")(trees)
    assert list_failed(assess_trees(trees)) == set()


def test_uninjected_pods_of_a_labelled_namespace_are_named_if_they_request_an_accelerator():
    trees = installations.healthy()
    trees["pods"].append(installations.pod("other", {}, {}))
    assert list_failed(assess_trees(trees)) == set()
    trees["pods"].append(installations.pod("trained", {}, {}, gpus=1))
    results = assess_trees(trees)
    (failure,) = [result for result in results if result.state is rows.State.FAIL]
    assert (failure.check, failure.detail) == ("uninjected", "1 of 2 were not injected: train/trained")


def test_check_and_the_admission_policy_find_the_same_uninjected_pods():
    for name, case in missed_pods.CASES.items():
        pod, excluded = msgspec.convert(missed_pods.pod(case), views.Pod), opt_in.ALWAYS_EXCLUDED | case.excluded
        found = opt_in.find_label_of_uninjected_pod(pod, case.namespace_labels, [missed_pods.ACCELERATOR], excluded)
        assert found == case.label, name


def test_uninjected_pods_of_a_namespace_that_the_webhook_excludes_are_not_named():
    trees = installations.healthy()
    trees["pods"].append(installations.pod("bare", {names.FABRIC: "roce"}, {}))
    selector = find_hook(trees, "pods.railwright.io")["namespaceSelector"]
    [excluding] = [item for item in selector["matchExpressions"] if item["key"].endswith("metadata.name")]
    assert find(trees, "uninjected").state is rows.State.FAIL
    excluding["values"].append("train")
    assert find(trees, "uninjected").state is rows.State.OK


def test_check_raises_no_exception_for_malformed_objects():
    trees = installations.healthy()
    trees["volcano"][0]["data"] = {"volcano-scheduler.conf": "tiers: [1, {plugins: [2, {name: extender}]}]"}
    for node in trees["nodes"]:
        node["status"]["capacity"]["nvidia.com/gpu"] = "many"
    assert list_failed(assess_trees(trees)) >= {"volcano-configuration"}


REVISION = "deployment.kubernetes.io/revision"
WARN, OK = rows.State.WARN, rows.State.OK


def reject_pod(trees, source="jobs.v1.batch", owner=None, event=None):
    """Add an Event about a rejected pod ten minutes ago, its owner with these fields, and the owner's Deployment."""
    kind, group = snapshots.WORKLOADS[source].name, snapshots.WORKLOADS[source].group
    above = installations.build_workload("Deployment", "dep", {}, uid="above", annotations={REVISION: "2"})
    trees["deployments.v1.apps"].append(above)
    controller = {"controller": True, "kind": "Deployment", "name": "dep", "uid": "above"}
    metadata = {"uid": "own", "ownerReferences": [controller], "annotations": {REVISION: "2"}}
    owner = owner or {}
    workload = installations.build_workload(kind, "llm", {}, **(metadata | owner.get("metadata", {})))
    workload["spec"] |= owner.get("spec", {})
    trees[source].append(workload | {"status": owner.get("status")})
    involved = {"apiVersion": f"{group}/v1", "kind": kind, "namespace": "train", "name": "llm", "uid": "own"}
    time = f"{NOW - dt.timedelta(seconds=600):%Y-%m-%dT%H:%M:%SZ}"
    trees["refusals"].append({"lastTimestamp": time, "message": "no rail9", "involvedObject": involved | (event or {})})


@pytest.mark.parametrize(
    ("fields", "unread", "state"),
    [
        ({}, {}, WARN),
        ({"event": {"uid": "deleted"}}, {}, OK),  # another Job has its name now
        ({"event": {"uid": "deleted"}}, {"jobs.v1.batch": "403"}, WARN),
        ({"event": {"uid": "deleted", "apiVersion": "example.com/v1"}}, {}, WARN),  # of a kind that is not read
        ({"source": "replicasets.v1.apps", "owner": {"spec": {"replicas": 1}}}, {}, WARN),
        ({"source": "replicasets.v1.apps", "owner": {"spec": {"replicas": 0}}}, {}, OK),
        ({"source": "replicasets.v1.apps", "owner": {"metadata": {"annotations": {REVISION: "1"}}}}, {}, OK),
        ({"owner": {"spec": {"suspend": True}}}, {}, OK),
        ({"owner": {"spec": {"parallelism": 0}}}, {}, OK),
        ({"owner": {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}}, {}, OK),
    ],
)
def test_rejected_pods_are_not_reported_once_their_owner_is_deleted_or_wants_no_pods(fields, unread, state):
    trees = installations.healthy()
    reject_pod(trees, **fields)
    for source in unread:
        trees[source].clear()
    assert find(trees, "refused", unread=unread).state is state


@pytest.mark.parametrize(("minutes", "phase", "state"), [(11, "Running", WARN), (9, "Running", OK), (9, "Failed", OK)])
def test_rejected_pods_are_not_reported_once_their_owner_has_got_a_pod(minutes, phase, state):
    trees = installations.healthy()
    reject_pod(trees)
    pod = installations.pod("llm-0", {}, {}) | {"status": {"phase": phase}}
    created = f"{NOW - dt.timedelta(minutes=minutes):%Y-%m-%dT%H:%M:%SZ}"
    owners = [{"kind": "Job", "name": "llm", "controller": True}]
    pod["metadata"] |= {"ownerReferences": owners, "creationTimestamp": created}
    trees["pods"].append(pod)
    assert find(trees, "refused").state is state
