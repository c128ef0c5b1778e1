"""Every row on recorded objects: a healthy cluster passes, and each defect fails its row only."""

import base64
import json

import bare_certificates
import installations
import missed_pods
import msgspec
import pytest
from broken_installations import (
    BREAKS,
    EXTENDER,
    WEBHOOK,
    assess_trees,
    clear,
    drop,
    find,
    hook,
    named,
    other_webhook,
    put,
    replace_in,
    repolicy,
    run_checks,
    unrotated,
)
from installations import NOW

from railwright.cli.checking import check_rows, command, installation, permissions, snapshots
from railwright.fabric import names, views
from railwright.fabric.injection import opt_in

ROWS = {row.anchor: row for row in command.ROWS}


def wrong(results):
    return {result.check for result in results if result.state in (check_rows.State.FAIL, check_rows.State.WARN)}


@pytest.mark.parametrize("change", [lambda _: None, installations.add_claims], ids=["", "claims"])
async def test_a_healthy_cluster_passes_every_row(change):
    trees = installations.healthy()
    change(trees)
    results = await read_restricted(installations.seen(trees))
    assert wrong(results) == set()
    assert {result.check for result in results} == {
        a for a, row in ROWS.items() if row.when is not check_rows.Phase.BEFORE
    }
    assert not any(result.hint for result in results)


def restrict(whole, row):
    sources = row.list_sources()
    return msgspec.structs.replace(
        whole,
        objects={name: trees for name, trees in whole.objects.items() if name in sources},
        unread={name: reason for name, reason in whole.unread.items() if name in sources},
        unknown=whole.unknown & set(sources),
    )


async def read_restricted(whole):
    """Return the results where a row gets only the sources that it names, as it does from a real cluster."""
    rows = check_rows.select_rows(command.ROWS)
    requested = iter(rows)

    async def read(names_):
        row = next(requested)
        assert names_ in ((), row.list_sources())
        return restrict(whole, row)

    return [result async for result in check_rows.run(rows, read)]


@pytest.mark.parametrize("name", ["no namespace", "namespace going", "no webhook"])
async def test_a_fatal_row_ends_the_run_and_nothing_more_is_read(name):
    change, anchor, _, _ = BREAKS[name]
    trees = installations.healthy()
    change(trees)
    whole, requested = installations.seen(trees), []

    async def read(names_):
        requested.append(names_)
        return whole

    results = [result async for result in check_rows.run(check_rows.select_rows(command.ROWS), read)]
    end = next(index for index, result in enumerate(results) if result.state is check_rows.State.FAIL)
    assert results[end].check == anchor
    assert {result.waits_for for result in results[end + 1 :]} == {anchor}
    assert set(requested[end + 1 :]) == {()}


def test_a_missing_installation_is_one_sentence_with_the_commands():
    trees = installations.healthy()
    trees["deployments"].clear()
    [failure] = [result for result in assess_trees(trees) if result.state is check_rows.State.FAIL]
    assert failure.detail == "railwright is not installed: namespace railwright-system has none of its Deployments"
    assert failure.hint.startswith(
        "helm install railwright CHART -n railwright-system --create-namespace, or kubectl apply"
    )


@pytest.mark.parametrize(
    ("name", "setting"),
    [
        ("no webhook", ""),
        ("no budget", ""),
        ("nobody rotates", ""),
        ("open", " --set webhook.failurePolicy=Fail"),
        ("no guard", " --set admissionPolicy.mode=Deny"),
    ],
)
async def test_a_fix_names_the_command_of_the_installation_and_sets_what_a_release_may_have_changed(name, setting):
    kustomized, released = installations.healthy(), installations.healthy()
    installations.install_by_helm(released)
    for trees, command_line in (
        (kustomized, "kubectl apply -k FOLDER"),
        (released, f"helm upgrade fabric-team CHART -n railwright-system --reset-then-reuse-values{setting}"),
    ):
        BREAKS[name][0](trees)
        results = await read_restricted(installations.seen(trees))
        hints = [result.hint for result in results if result.hint]
        assert hints
        assert all(command_line in hint for hint in hints), hints


def test_while_railwright_is_disabled_the_fix_is_to_enable_it():
    trees = installations.healthy()
    trees["mutating"].clear()
    trees["admission-bindings"].clear()
    trees["disabled"] = [{"metadata": {"name": "railwright-disabled"}}]
    hints = {result.check: result.hint for result in assess_trees(trees) if result.state is check_rows.State.FAIL}
    assert hints == {"mutating-configuration": "railwright enable", "admission-policy": "railwright enable"}


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
    BREAKS["no budget"][0](trees)
    [hint] = [result.hint for result in assess_trees(trees) if result.hint]
    assert f"change it in the repository that {deployer} deploys" in hint
    assert "helm upgrade" not in hint


def tag_images(tag):
    def change(trees):
        for deployment in trees["deployments"]:
            deployment["spec"]["template"]["spec"]["containers"][0]["image"] = f"registry:5000/railwright{tag}"

    return change


def run_versions(kubernetes, scheduler=""):
    def change(trees):
        trees["version"][0] = {"gitVersion": kubernetes}
        if scheduler:
            containers = [{"name": "volcano-scheduler", "image": scheduler}]
            trees["volcano-deployment"] = [{"metadata": {}, "spec": {"template": {"spec": {"containers": containers}}}}]

    return change


def claim_without_argument(scheduler):
    def change(trees):
        installations.add_claims(trees)
        replace_in("volcano", "predicate.DynamicResourceAllocationEnable", "unknown")(trees)
        run_versions("v1.34.1", scheduler)(trees)

    return change


def limit_disruptions(limit):
    def change(trees):
        budget = named(trees, "budgets", WEBHOOK)
        budget["spec"] = {"selector": budget["spec"]["selector"], **limit}
        budget["status"] = {"disruptionsAllowed": 0, "currentHealthy": 2}

    return change


def guard_another_accelerator(trees):
    repolicy("defaultFabric: roce", "defaultFabric: roce\naccelerators: [amd.com/gpu]")(trees)
    guard = named(trees, "admission-policies", "railwright-injected-by-namespace")
    for condition in guard["spec"]["matchConditions"]:
        condition["expression"] = condition["expression"].replace(
            "['nvidia.com/gpu']", "['amd.com/gpu', 'nvidia.com/gpu']"
        )


def start_extender(*options):
    def change(trees):
        (container,) = named(trees, "deployments", EXTENDER)["spec"]["template"]["spec"]["containers"]
        container["args"] += options
        container["ports"].append({"name": "volcano", "containerPort": 8715})

    return change


CLIENT_CA = "--client-ca=/tls/ca.crt"
# what is done to the cluster, the row that tells, its state, and words of its detail
SCORED = """
profiles:
- pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {resources: [{name: cpu, weight: 1}, {name: nvidia.com/gpu, weight: 1}]}}
extenders:"""


def ask_topology(*changes):
    """Have the policy ask for a topology, and kube-scheduler score the accelerators."""

    def change(trees):
        repolicy("numa: required", "numa: required, gangTopology: required")(trees)
        replace_in("kube-system", "\nextenders:", SCORED)(trees)
        for further in changes:
            further(trees)

    return change


def ask_hyper_nodes(plugin, *changes):
    """Have the policy ask Volcano for HyperNodes, with this plugin in its configuration."""

    def change(trees):
        repolicy("preset: volcano", "preset: volcano, gangTopology: preferred")(trees)
        if plugin:
            replace_in("volcano", "  - name: extender", f"  - {plugin}\n  - name: extender")(trees)
        for further in changes:
            further(trees)

    return change


def drop_field(trees):
    """Add a pod of a Job whose topology the API server has dropped."""
    record = {"railwright.io/topology": '{"fields": ["/spec/scheduling"]}', names.INJECTION: "{}"}
    labels = {names.FABRIC: "roce", "batch.kubernetes.io/job-name": "t"}
    trees["pods"].append(installations.pod("t-0", labels, record))


OUTCOMES = [
    *((tag_images(tag), "images", "skip", "names no version") for tag in (":latest", "", "@sha256:" + "0" * 64)),
    (run_versions("v1.34.9"), "versions", "ok", "Kubernetes v1.34.9"),
    (run_versions("v1.34.1", "docker.io/volcanosh/vc-scheduler:v1.14.3"), "versions", "ok",
     "Kubernetes v1.34.1, Volcano 1.14.3"),
    (run_versions("v1.31.0"), "versions", "skip", "Kubernetes v1.31.0 is not tested (tested: v1.34.1, v1.37.2)"),
    (run_versions("v1.34.1", "vc-scheduler:v1.9.0"), "versions", "skip",
     "Volcano 1.9.0 is not tested (tested: v1.14.1, v1.15.1)"),
    (run_versions("v1.34.1", "vc-scheduler:latest"), "versions", "skip", "Volcano of unknown version"),
    (claim_without_argument("vc-scheduler:v1.14.1"), "claim-schedulers", "fail", "no argument predicate.Dynamic"),
    (claim_without_argument("vc-scheduler:latest"), "claim-schedulers", "fail", "no argument predicate.Dynamic"),
    (claim_without_argument("a.b/vc-scheduler:v1.15.1"), "claim-schedulers", "ok", ""),
    (limit_disruptions({"minAvailable": 2}), "webhook-budget", "warn", "(minAvailable 2) allows no eviction"),
    (limit_disruptions({"maxUnavailable": 0}), "webhook-budget", "warn", "(maxUnavailable 0) allows no eviction"),
    (put("budgets", WEBHOOK, {"matchExpressions": [{"key": "app.kubernetes.io/component", "operator": "Exists"}]},
         "spec", "selector"), "webhook-budget", "ok", WEBHOOK),
    (guard_another_accelerator, "admission-policy", "warn", "lists nvidia.com/gpu, which is not an accelerator"),
    (repolicy("defaultFabric: roce", "defaultFabric: roce\naccelerators: [nvidia.com/gpu, amd.com/gpu]"),
     "admission-policy", "warn", "amd.com/gpu"),
    (drop("deployments", EXTENDER), "extender-deployment", "skip", "gangs are placed without railwright"),
    (installations.add_claims, "claim-devices", "ok", "3 nodes, 2 rails"),
    (installations.add_claims, "claim-pairs", "ok", "3 nodes, by resource.kubernetes.io/pcieRoot"),
    (lambda trees: trees["pods"].append(
        installations.pod("static", {names.FABRIC: "roce"}, {"kubernetes.io/config.mirror": "x"})),
     "uninjected", "ok", "1 pod"),
    (start_extender(), "extender-callers", "skip",
     "/scheduler on port 8713: whoever reaches the port; /volcano on port 8713: whoever reaches"),
    (start_extender(CLIENT_CA), "extender-callers", "ok",
     "/scheduler on port 8713: a client certificate of anyone whom the CA"),
    (start_extender(CLIENT_CA, "--client-names=kube-scheduler"), "extender-callers", "ok",
     "/volcano on port 8713: a client certificate of kube-scheduler; /explain: a token"),
    (start_extender("--volcano-listen=:8715"), "extender-callers", "warn", "/volcano on port 8715: nobody; /explain"),
    (start_extender("--listen=:9000"), "extender-callers", "ok", "/scheduler on port 9000: nobody"),
    (start_extender(CLIENT_CA), "volcano-configuration", "fail",
     "which Volcano cannot present: set extender.volcano"),
    (start_extender("--volcano-listen=:8715"), "volcano-configuration", "fail",
     "but Volcano has a port of its own: 8715"),
    (start_extender(CLIENT_CA), "kube-scheduler-configuration", "fail", "tlsConfig has no certFile and keyFile"),
    (lambda _: None, "gang-topology", "skip", "no fabric sets placement.gangTopology"),
    (ask_topology(), "gang-topology", "ok", "fabric roce: required, at fabric.topograph.run/tier-0 or"),
    (ask_topology(clear("kube-system")), "gang-topology", "ok", "not visible here: scoringStrategy.resources"),
    (ask_topology(drop_field), "gang-topology", "warn", "so that of 1 pod has no effect: train/t-0"),
    (ask_hyper_nodes(""), "gang-topology", "warn", "lacks the plugin network-topology-aware"),
    (ask_hyper_nodes("{name: network-topology-aware}"), "gang-topology", "warn",
     "network-topology-aware does not list nvidia.com/gpu"),
    (ask_hyper_nodes("{name: network-topology-aware, arguments: {hypernode.binpack.resources: 'a/b, nvidia.com/gpu'}}"),
     "gang-topology", "warn", "better without a soft constraint (fabric ib)"),
    (ask_hyper_nodes("{name: network-topology-aware, arguments: {hypernode.binpack.resources: nvidia.com/gpu}}",
                     replace_in("volcano", "- name: extender", "- name: gang")),
     "gang-topology", "ok", "fabric ib: preferred"),
    (ask_hyper_nodes("", clear("volcano")), "gang-topology", "ok", "fabric ib: preferred"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "check", "state", "words"), OUTCOMES)
def test_each_state_of_a_row_has_its_own_wording(change, check, state, words):
    trees = installations.healthy()
    change(trees)
    result = find(trees, check)
    assert (result.state, words in result.detail) == (state, True), result.detail


def test_pods_of_an_unreadable_namespace_do_not_count_as_injected():
    reason = "you may not list pods -n train (403 Forbidden)"
    row = find(installations.healthy(), "uninjected", unread={"namespaced-pods": reason})
    assert (row.state, row.detail, row.unread) == (check_rows.State.SKIP, reason, True)


@pytest.mark.parametrize("name", BREAKS)
async def test_each_defect_fails_only_its_row_with_a_fix(name):
    change, anchor, state, words = BREAKS[name]
    trees = installations.healthy()
    change(trees)
    results = await read_restricted(installations.seen(trees))
    assert wrong(results) == {anchor}, [
        (result.check, result.detail) for result in results if result.check in wrong(results)
    ]
    matches = [result for result in results if result.check == anchor and result.state == state]
    assert matches, [(result.state, result.detail) for result in results if result.check == anchor]
    assert words in " ".join(result.detail for result in matches)
    assert all(result.hint for result in matches)


def test_every_row_has_a_test_that_breaks_it():
    elsewhere = {
        "api-reachable", "caller-permissions", "dry-run", "policy-in-force", "multus", "numa-topologies",
        "install-permissions", "device-pools", "volcano", "extender-deployment", "versions", "claim-drivers",
        "extender-callers",
    }  # fmt: skip
    assert set(ROWS) == {anchor for _, anchor, _, _ in BREAKS.values()} | elsewhere


VOLCANO = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "volcano-system"}},
    "podSelector": {"matchLabels": {"app": "volcano-scheduler"}},
}


@pytest.mark.parametrize(
    ("port", "peers", "state", "words"),
    [
        (8715, [VOLCANO], "ok",
         "8715: pods app=volcano-scheduler of namespaces kubernetes.io/metadata.name=volcano-system"),
        ("volcano", [{"podSelector": {}}], "ok", "8715: pods of any label of namespace railwright-system"),
        (None, [{"ipBlock": {"cidr": "10.0.0.0/28"}}], "ok", "8715: 10.0.0.0/28"),
        (8715, [VOLCANO, {"ipBlock": {"cidr": "0.0.0.0/0"}}], "warn", "8715: whoever reaches the port"),
        ("volcano", [{"namespaceSelector": {}}], "ok", "8715: pods of all namespaces"),
        (None, [], "warn", "8715: whoever reaches the port"),
    ],
)  # fmt: skip
def test_network_policies_decide_who_has_access_to_volcanos_port(port, peers, state, words):
    trees = installations.healthy()
    policy = named(trees, "network-policies", EXTENDER)
    (rule, *_) = policy["spec"]["ingress"]
    rule["from"] = [{"ipBlock": {"cidr": "10.1.0.0/16"}}]
    added = {"from": peers} if port is None else {"ports": [{"protocol": "TCP", "port": port}], "from": peers}
    policy["spec"]["ingress"].append(added)
    other = {"spec": {"podSelector": {"matchLabels": {"app": "other"}}, "ingress": [{}]}}
    trees["network-policies"].append(other)
    start_extender(CLIENT_CA, "--client-names=kube-scheduler", "--volcano-listen=:8715")(trees)
    result = find(trees, "extender-callers")
    assert (result.state, words in result.detail) == (state, True), result.detail


def test_without_an_answer_of_the_api_server_all_other_rows_are_skipped():
    unread = {source.name: "no answer" for source in snapshots.SOURCES}
    results = run_checks(snapshots.Snapshot(names.NAMESPACE, NOW, unread=unread))
    assert [result.check for result in results if result.state is check_rows.State.FAIL] == ["api-reachable"]
    assert {result.detail for result in results[1:]} == {"fix api-reachable first"}


# of the kinds of workloads, whose names have points, one is tried
UNREADABLE = [source.name for source in snapshots.SOURCES if "." not in source.name and source.name != "version"]


@pytest.mark.parametrize("source", [*UNREADABLE, "rayjobs.v1.ray.io"])
async def test_rows_that_the_caller_may_not_read_are_skipped_with_the_reason(source):
    trees = installations.healthy()
    right = f"list {source}"
    trees[snapshots.DRY_RUNS] = installations.seen(trees).get_all(snapshots.DRY_RUNS)
    trees[source].clear()
    more = {"unread": {source: f"you may not {right} (403 Forbidden)"}, "forbidden": (right,)}
    results = await read_restricted(installations.seen(trees, **more))
    assert wrong(results) == {"caller-permissions"}, [(e.check, e.detail) for e in results if e.check in wrong(results)]


def test_without_access_to_secrets_a_broken_ca_bundle_fails_and_a_good_one_is_skipped():
    trees = installations.healthy()
    forbidden = {f"{server}-secret": "you may not get secrets" for server in (WEBHOOK, EXTENDER)}
    for source in forbidden:
        trees[source].clear()
    by_check = {result.check: result for result in assess_trees(trees, unread=forbidden)}
    assert by_check["webhook-secret"].state is check_rows.State.SKIP
    assert (by_check["ca-bundle"].state, by_check["ca-bundle"].unread) == (check_rows.State.SKIP, True)
    assert by_check["ca-bundle"].detail == "you may not get secrets"
    assert by_check["ca-validity"].state is check_rows.State.OK, "every CA of the bundle is valid for long"
    hook(trees, "pods.railwright.io")["clientConfig"]["caBundle"] = "eA=="
    by_check = {result.check: result for result in assess_trees(trees, unread=forbidden)}
    assert by_check["ca-bundle"].state is check_rows.State.FAIL


@pytest.mark.parametrize(
    ("dry_run", "check", "state", "words"),
    [
        (snapshots.DryRun("roce", "default", refusal="failed calling webhook: x509"), "dry-run", "fail", "x509"),
        (snapshots.DryRun("roce", "default", pod={"metadata": {}}), "dry-run", "fail", "did not call the webhook"),
        (snapshots.DryRun("roce", "default", refusal="no", forbidden=True), "dry-run", "skip",
         "you may not create pods -n default; give --namespace-for-probe"),
        (snapshots.DryRun("roce", problem="no namespace may use fabric roce"), "dry-run", "skip", "no namespace"),
        (snapshots.DryRun("roce", "default",
                          pod={"metadata": {"annotations": {names.INJECTION: '{"policy": "sha256:0"}'}}}),
         "policy-in-force", "fail", "sha256:0"),
        (snapshots.DryRun("roce", "default", pod={"metadata": {"annotations": {names.INJECTION: "[]"}}}),
         "policy-in-force", "fail", "an unknown policy"),
    ],
)  # fmt: skip
def test_the_row_of_the_dry_run_shows_the_api_servers_answer(dry_run, check, state, words):
    results = assess_trees({**installations.healthy(), "dry-runs": [dry_run]})
    (match,) = [result for result in results if result.check == check]
    assert (match.state, match.subject) == (state, "roce")
    assert words in match.detail
    assert wrong(results) == ({check} if state == "fail" else set())


def test_rails_with_networks_need_multus_and_others_do_not():
    trees = installations.healthy()
    trees["networks"].clear()
    results = assess_trees(trees, unknown=frozenset({"networks"}))
    assert wrong(results) == {"multus"}
    repolicy("network: prod/rail0, ", "")(trees)
    repolicy("network: prod/rail1, ", "resource: nvidia.com/mlx5_1, ")(trees)
    assert wrong(assess_trees(trees, unknown=frozenset({"networks"}))) == set()


def test_required_numa_alignment_needs_reports_or_shapes():
    trees = installations.healthy()
    trees["topologies"].clear()
    assert wrong(assess_trees(trees)) == set(), "the shapes tell"
    text = trees["policy"][0]["data"][names.POLICY_KEY]
    trees["policy"][0]["data"][names.POLICY_KEY] = text[: text.index("  numa:\n  -")]
    assert wrong(assess_trees(trees)) == {"numa-topologies"}


def test_a_missing_extender_is_no_failure():
    trees = installations.healthy()
    drop("deployments", EXTENDER)(trees)
    clear(f"{EXTENDER}-secret")(trees)
    assert wrong(assess_trees(trees)) == set()


def test_a_webhook_called_by_url_is_checked_by_the_host_of_its_url():
    trees = installations.healthy()
    for source in ("mutating", "validating"):
        for webhook in trees[source][0]["webhooks"]:
            service = webhook["clientConfig"].pop("service")
            webhook["clientConfig"]["url"] = f"https://127.0.0.1:9443{service['path']}"
    assert wrong(assess_trees(trees)) == {"webhook-names"}
    leaf, authority = installations.pair("127.0.0.1")
    trees[f"{WEBHOOK}-secret"][0]["data"] = installations.secret(leaf)["data"]
    installations.trust(trees, authority)
    assert wrong(assess_trees(trees)) == set()


def test_certificates_of_an_intermediate_ca_are_trusted_by_their_root():
    root = bare_certificates.make("root", authority=True)
    middle = bare_certificates.make("middle", root, authority=True)
    leaf, key = bare_certificates.make("leaf", middle, host=f"{WEBHOOK}.{names.NAMESPACE}.svc")
    trees = installations.healthy()
    data = trees[f"{WEBHOOK}-secret"][0]["data"]
    data["tls.key"] = encode(bare_certificates.key_pem(key))
    for entry in (entry for source in ("mutating", "validating") for entry in trees[source][0]["webhooks"]):
        entry["clientConfig"]["caBundle"] = encode(bare_certificates.pem(root[0]))
    for chain, expected in (
        ((leaf, middle[0]), set()),
        ((leaf,), {"ca-bundle"}),  # without the one in the middle nobody can tell
        ((leaf, root[0]), {"ca-bundle"}),  # a trusted root beside it does not make it trusted
    ):
        data["tls.crt"] = encode(bare_certificates.pem(*chain))
        assert wrong(assess_trees(trees)) - {"webhook-validity", "ca-validity"} == expected


def encode(pem):
    return base64.b64encode(pem).decode()


def test_pods_of_a_namespace_that_opts_in_count_when_they_ask_for_an_accelerator():
    def pods(*trees):
        return tuple(msgspec.convert(tree, views.Pod) for tree in trees)

    trained, other = installations.pod("trained", {}, {}, gpus=1), installations.pod("other", {}, {})
    trees = installations.healthy()
    assert wrong(assess_trees({**trees, "namespaced-pods": pods(other)})) == set()
    results = assess_trees({**trees, "namespaced-pods": pods(trained, other)})
    (failure,) = [result for result in results if result.state is check_rows.State.FAIL]
    assert (failure.check, failure.detail) == ("uninjected", "1 of 2: train/trained")


def test_the_shared_cases_of_missed_pods_are_those_that_are_found():
    for name, case in missed_pods.CASES.items():
        pod, excluded = msgspec.convert(missed_pods.pod(case), views.Pod), opt_in.ALWAYS_EXCLUDED | case.excluded
        found = opt_in.find_missed_label(pod, case.namespace_labels, [missed_pods.ACCELERATOR], excluded)
        assert found == case.label, name


@pytest.mark.parametrize(
    "name",
    ["the label", "the namespace's label", "the record", "kube-system", "a namespace that the installation excludes"],
)
def test_the_check_counts_missed_pods(name):
    case, trees = missed_pods.CASES[name], installations.healthy()
    trees["namespaces"] = [
        namespace for namespace in trees["namespaces"] if snapshots.get_name(namespace) != case.namespace
    ]
    labels = {"kubernetes.io/metadata.name": case.namespace, **case.namespace_labels}
    trees["namespaces"].append({"metadata": {"name": case.namespace, "labels": labels}})
    for webhook in (hook(trees, "pods.railwright.io"), hook(trees, "namespaced-pods.railwright.io")):
        [excluding] = [
            e for e in webhook["namespaceSelector"]["matchExpressions"] if e["key"].endswith("metadata.name")
        ]
        excluding["values"] += sorted(case.excluded)
    tree, unlabelled = missed_pods.pod(case), ()
    if names.FABRIC in tree["metadata"].get("labels", {}):
        trees["pods"].append(tree)
    elif case.namespace_labels:
        unlabelled = (msgspec.convert(tree, views.Pod),)
    row = find({**trees, "namespaced-pods": unlabelled}, "uninjected")
    if case.label is None:
        assert row.state is check_rows.State.OK, row.detail
    else:
        assert row.state is check_rows.State.FAIL
        assert f"{case.namespace}/p" in row.detail


def test_without_a_policy_the_replicas_row_explains_that_no_server_is_ready():
    trees = installations.healthy()
    trees["policy"] = []
    for deployment in trees["deployments"]:
        if deployment["metadata"]["name"] in (WEBHOOK, EXTENDER):
            deployment["status"] = {"replicas": 2}
    rows = {result.check: result for result in assess_trees(trees)}
    create = "kubectl -n railwright-system create configmap railwright-policy --from-file=policy.yaml"
    for check in ("webhook-replicas", "extender-replicas"):
        assert rows[check].state is check_rows.State.FAIL
        assert (
            "replicas need a policy to become ready, and ConfigMap railwright-policy does not exist"
            in rows[check].detail
        )
        assert create in rows[check].hint
    assert create in rows["policy-exists"].hint
    certs = {"metadata": {"name": "railwright-certs"}, "spec": {"replicas": 2}, "status": {}}
    assessment = installation.check_replicas(installations.seen(trees), certs)
    assert "policy" not in assessment.detail, "the rotator needs none"


def test_before_an_installation_only_prerequisites_are_checked():
    empty = {source.name: [] for source in snapshots.SOURCES}
    whole = installations.healthy()
    empty |= {name: whole[name] for name in ("version", "nodes", "namespaces")}
    empty["permissions"] = [(permission, True) for permission in permissions.TO_INSTALL]
    more = {"unknown": frozenset({"networks", "queues"})}
    results = assess_trees(empty, before=True, **more)
    assert {result.check for result in results} == {
        a for a, r in ROWS.items() if r.when is not check_rows.Phase.INSTALLED
    }
    assert wrong(results) == {"multus"}, "a warning: networks may not be needed"
    by_check = {result.check: result for result in results}
    assert by_check["device-pools"].detail == "nvidia.com/mlx5_0 on 3, nvidia.com/mlx5_1 on 3"
    assert by_check["volcano"].state is check_rows.State.SKIP
    empty["permissions"] = [(item, item.resource != "clusterroles") for item in permissions.TO_INSTALL]
    assert "install-permissions" in wrong(assess_trees(empty, before=True, **more))
    for node in empty["nodes"]:
        node["status"] = {}
    assert "device-pools" in wrong(assess_trees(empty, before=True, **more))


def test_a_driver_without_tested_slices_is_named_and_no_driver_is_ticked():
    trees = installations.healthy()
    installations.add_claims(trees)
    trees["device-slices"][0]["spec"]["driver"] = "nic.example.com"
    result = find(trees, "claim-drivers")
    assert result.state is check_rows.State.SKIP
    assert "nic.example.com on 1 node (not tested)" in result.detail
    assert "gpu.nvidia.com on 3 nodes (tested with slices of" in result.detail


def test_hostile_objects_cause_no_exception():
    trees = installations.healthy()
    put("networks", "rail0", json.dumps([1]), "spec", "config")(trees)
    trees["volcano"][0]["data"] = {"volcano-scheduler.conf": "tiers: [1, {plugins: [2, {name: extender}]}]"}
    trees["kube-system"][0]["data"] = {"x": "KubeSchedulerConfiguration: {"}
    trees["leases"][0]["spec"]["renewTime"] = "soon"
    for node in trees["nodes"]:
        node["status"]["capacity"]["nvidia.com/gpu"] = "many"
    assert wrong(assess_trees(trees)) >= {
        "rail-configurations",
        "volcano-configuration",
        "kube-scheduler-configuration",
    }


def test_a_second_scheduler_without_the_extender_is_not_reported():
    trees = installations.healthy()
    other = {"config.yaml": "kind: KubeSchedulerConfiguration\nprofiles: []"}
    trees["kube-system"].insert(0, {"metadata": {"name": "a-second-scheduler"}, "data": other})
    assert wrong(assess_trees(trees)) == set()


def test_certificates_are_rotated_by_the_deployment_that_is_ready_and_holds_the_lease():
    trees = installations.healthy()
    unrotated(trees)
    spec = {"replicas": 2, "selector": {"matchLabels": {"c": "certs"}}, "template": {"metadata": {"labels": {}}}}
    deployment = {"metadata": {"name": snapshots.CERTS}, "spec": spec, "status": {"readyReplicas": 2}}
    trees["deployments"].append(deployment)
    assert find(trees, "certs-rotation").detail == "by pod-a"
    named(trees, "leases", snapshots.CERTS)["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z"
    assert wrong(assess_trees(trees)) == {"certs-rotation"}
    deployment["status"]["readyReplicas"] = 1
    result = find(trees, "certs-rotation")
    assert (result.state, result.detail) == (check_rows.State.FAIL, "1 of 2 ready")


def test_a_node_with_rails_of_claims_only_lacks_none_of_another_fabric():
    trees = installations.healthy()
    installations.add_claims(trees)
    for amounts in named(trees, "nodes", "gpu-2")["status"].values():
        for rail in range(2):
            amounts.pop(f"nvidia.com/mlx5_{rail}")
    assert wrong(assess_trees(trees)) == set()


def test_gpus_and_rails_that_only_slices_offer_are_counted():
    trees = installations.healthy()
    installations.add_claims(trees)
    for node in trees["nodes"]:
        for amounts in (node["status"]["capacity"], node["status"]["allocatable"]):
            amounts.pop("nvidia.com/gpu")
    assert wrong(assess_trees(trees)) == set()
    assert find(trees, "accelerators").detail == "3 of 3 nodes have nvidia.com/gpu"
    assert "claims.railwright.io/claimed.rail0 on 3" in find(trees, "device-pools", before=True).detail


def test_a_fix_edits_the_object_that_has_the_policy():
    trees = installations.healthy()
    repolicy("defaultFabric: roce\n", "")(trees)
    drop("namespaces", "train")(trees)
    assert (
        find(trees, "default-fabric").hint
        == "set defaultFabric: kubectl -n railwright-system edit configmap railwright-policy"
    )


@pytest.mark.parametrize(
    ("labels", "seconds"),
    [
        (("jobset.sigs.k8s.io/jobset-name", "leaderworkerset.sigs.k8s.io/name"), 25),
        (("leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/name"), 35),
        (("", "leaderworkerset.sigs.k8s.io/name"), 35),
        (("", ""), 35),
    ],
)
def test_webhooks_that_require_different_labels_are_not_called_for_the_same_pod(labels, seconds):
    trees = installations.healthy()
    other_webhook("volcano", 10)(trees)
    for index, label in enumerate(labels):
        other_webhook(f"framework-{index}", 10, label)(trees)
    row = find(trees, "timeouts")
    assert row.state is (check_rows.State.WARN if seconds > 30 else check_rows.State.OK)
    assert f" {seconds} s" in row.detail


@pytest.mark.parametrize("key", ["lastTimestamp", "eventTime", "creationTimestamp"])
def test_a_rejection_counts_by_the_time_that_its_event_has(key):
    trees = installations.healthy()
    when = f"{installations.NOW:%Y-%m-%dT%H:%M:%SZ}"
    event = {"metadata": {}, "lastTimestamp": None, "eventTime": None, "message": "rail9 is no rail"}
    (event["metadata"] if key == "creationTimestamp" else event)[key] = when
    trees["refusals"].append(event)
    assert find(trees, "refused").state is check_rows.State.WARN


@pytest.mark.parametrize(("address", "state"), [("0000:10:1c.0", "ok"), ("0000:ff:1c.0", "fail")])
def test_pairs_of_a_node_shape_need_a_gpu_with_one_of_their_addresses(address, state):
    trees = installations.healthy()
    installations.add_claims(trees)
    repolicy("{deviceClass: gpu.nvidia.com}}", "{deviceClass: gpu.nvidia.com}, pairBy: nodeShape}")(trees)
    pairs = 'acceleratorsOfRail: {rail0: ["0000:10:1c.0"], rail1: ["0000:20:1c.0"]}\n  devices: {rail0'
    repolicy("devices: {rail0", pairs)(trees)
    for offered in trees["device-slices"]:
        if offered["spec"]["driver"] == "gpu.nvidia.com":
            offered["spec"]["devices"][0]["attributes"]["resource.kubernetes.io/pciBusID"] = {"string": address}
    assert find(trees, "claim-pairs").state == state
