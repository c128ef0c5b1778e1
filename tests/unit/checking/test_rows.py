"""Every row over data: a healthy cluster passes; broken in one way, its one row says so and nothing else does."""

import base64
import datetime as dt
import json
import pathlib
import re

import installations
import missed_pods
import msgspec
import pytest
import yaml
from installations import DAY, LEAF, NOW

from certs import issue
from railwright.cli.checking import check_rows, command, installation, snapshots
from railwright.fabric import names, views

WEBHOOK, EXTENDER = "railwright-webhook", "railwright-extender"
ROWS = {row.anchor: row for group in command.GROUPS for row in group.rows}


def judged(trees, *, before=False, **more):
    return check_rows.run_checks(command.GROUPS, installations.seen(trees, **more), before=before)


def wrong(results):
    return {each.check for each in results if each.state in (check_rows.State.FAIL, check_rows.State.WARN)}


def named(trees, source, name):
    return next(each for each in trees[source] if each["metadata"]["name"] == name)


def hook(trees, name):
    return next(h for source in ("mutating", "validating") for h in trees[source][0]["webhooks"] if h["name"] == name)


def repolicy(old, new):
    def change(trees):
        text = trees["policy"][0]["data"][names.POLICY_KEY]
        assert old in text
        trees["policy"][0]["data"][names.POLICY_KEY] = text.replace(old, new)

    return change


def drop(source, name):
    def change(trees):
        trees[source].remove(named(trees, source, name))

    return change


def clear(source):
    def change(trees):
        trees[source].clear()

    return change


def put(source, name, value, *path):
    """Set what is under a path of an object."""

    def change(trees):
        *above, last = path
        at = named(trees, source, name)
        for key in above:
            at = at[key]
        at[last] = value

    return change


def put_hook(name, value, *path):
    def change(trees):
        *above, last = path
        at = hook(trees, name)
        for key in above:
            at = at[key]
        at[last] = value

    return change


def certificate(server=WEBHOOK, **times):
    """Another certificate under the same authority, as the caBundle trusts it."""

    def change(trees):
        leaf, authority = installations.pair(f"{server}.{names.NAMESPACE}.svc", **times)
        other, _ = installations.pair(f"{EXTENDER}.{names.NAMESPACE}.svc", authority=authority)
        trees[f"{server}-secret"][0]["data"] = installations.secret(leaf)["data"]
        if server == WEBHOOK:
            trees["railwright-extender-secret"][0]["data"] = installations.secret(other)["data"]
            installations.trust(trees, authority)

    return change


def old_authority(trees):
    """An authority with twenty days left, and a fresh leaf of a month."""
    authority = issue.issue_ca("a", now=NOW - 345 * DAY, lifetime=365 * DAY)
    leaf, _ = installations.pair(f"{WEBHOOK}.{names.NAMESPACE}.svc", days=30, left=19, authority=authority)
    trees[f"{WEBHOOK}-secret"][0]["data"] = installations.secret(leaf)["data"]
    installations.trust(trees, authority)


def another_host(trees):
    leaf, authority = installations.pair("webhook.example")
    trees[f"{WEBHOOK}-secret"][0]["data"] = installations.secret(leaf)["data"]
    installations.trust(trees, authority)


def mixed_pair(trees):
    leaf, _ = installations.pair("x")
    trees[f"{WEBHOOK}-secret"][0]["data"]["tls.key"] = base64.b64encode(leaf.key_pem).decode()


def foreign_bundle(trees):
    _, authority = installations.pair("x")
    bundle = base64.b64encode(authority.certificate_pem).decode()
    hook(trees, "bindings.railwright.io")["clientConfig"]["caBundle"] = bundle


def other_webhook(name, seconds):
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    entry = {"name": "other.example.com", "rules": [rule], "timeoutSeconds": seconds, "clientConfig": {}}
    return lambda trees: trees["mutating"].append({"metadata": {"name": name}, "webhooks": [entry]})


def not_reinvoked(trees):
    other_webhook("zz-sidecars", 5)(trees)
    hook(trees, "pods.railwright.io")["reinvocationPolicy"] = "Never"


def volcano(old, new):
    def change(trees):
        data = trees["volcano"][0]["data"]
        assert old in data["volcano-scheduler.conf"]
        data["volcano-scheduler.conf"] = data["volcano-scheduler.conf"].replace(old, new)

    return change


def kube(old, new):
    def change(trees):
        data = trees["kube-system"][0]["data"]
        assert old in data["config.yaml"]
        data["config.yaml"] = data["config.yaml"].replace(old, new)

    return change


def every_node(change):
    def each(trees):
        for node in trees["nodes"]:
            change(node)

    return each


def refusal(trees):
    about = {"kind": "Job", "namespace": "train", "name": "llm"}
    when = f"{NOW - dt.timedelta(minutes=5):%Y-%m-%dT%H:%M:%SZ}"
    trees["refusals"].append({"involvedObject": about, "lastTimestamp": when, "message": "rail9 is no rail"})


def all_on_one_node(trees):
    for each in trees["own-pods"]:
        each["spec"]["nodeName"] = "gpu-0"


def one_replica(trees):
    named(trees, "deployments", WEBHOOK)["spec"]["replicas"] = 1


def blocking_budget(trees):
    budget = named(trees, "budgets", WEBHOOK)
    budget["status"] = {"disruptionsAllowed": 0, "currentHealthy": 2}


def image(trees):
    for each in trees["deployments"]:
        each["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/railwright:0.0.9"


def stale_lease(trees):
    long_ago = NOW - dt.timedelta(minutes=3)
    named(trees, "leases", EXTENDER)["spec"]["renewTime"] = f"{long_ago:%Y-%m-%dT%H:%M:%S.000000Z}"


def unrotated(trees):
    trees[f"{WEBHOOK}-secret"][0]["metadata"]["annotations"] = {}
    trees["deployments"] = [each for each in trees["deployments"] if each["metadata"]["name"] != snapshots.CERTS]


def no_labels(node):
    node["metadata"]["labels"].pop(LEAF)


def refused_pods(trees):
    named(trees, "namespaces", "train")["metadata"]["labels"][names.FABRIC] = "nvlink"


# one break a line: what is done to the cluster, the row that has to say so, how it ends, and words it has to use
BREAKS = {
    "old kubernetes": (lambda t: t["version"].__setitem__(0, {"gitVersion": "v1.29.4"}), "api-version", "fail",
                       "1.29.4"),
    "no namespace": (drop("namespaces", names.NAMESPACE), "namespace", "fail", "does not exist"),
    "namespace going": (put("namespaces", names.NAMESPACE, "2026-01-01T00:00:00Z", "metadata", "deletionTimestamp"),
                        "namespace", "fail", "is being deleted"),
    "no webhook": (drop("deployments", WEBHOOK), "webhook-deployment", "fail", "Deployment railwright-webhook"),
    "webhook not ready": (put("deployments", WEBHOOK, 1, "status", "readyReplicas"), "webhook-replicas", "fail",
                          "1 of 2"),
    "webhook scaled away": (put("deployments", WEBHOOK, 0, "spec", "replicas"), "webhook-replicas", "fail", "to 0"),
    "one replica": (one_replica, "webhook-availability", "warn", "1 replica"),
    "one node": (all_on_one_node, "webhook-availability", "warn", "gpu-0"),
    "no budget": (drop("budgets", WEBHOOK), "webhook-budget", "warn", "no PodDisruptionBudget"),
    "a budget that blocks": (blocking_budget, "webhook-budget", "warn", "never finishes"),
    "no endpoint": (drop("slices", WEBHOOK), "webhook-endpoints", "fail", "no EndpointSlice"),
    "no service": (drop("services", WEBHOOK), "webhook-endpoints", "fail", "Service railwright-webhook does not"),
    "another release": (image, "images", "warn", "0.0.9"),
    "no secret": (clear(f"{WEBHOOK}-secret"), "webhook-secret", "fail", "railwright-webhook-tls does not exist"),
    "no pem": (lambda t: t[f"{WEBHOOK}-secret"][0]["data"].update({"tls.crt": "eA=="}), "webhook-secret", "fail",
               "is not a certificate"),
    "another key": (mixed_pair, "webhook-pair", "fail", "not the key"),
    "another name": (lambda t: t[f"{EXTENDER}-secret"][0].update(
        data=installations.secret(installations.pair("localhost")[0])["data"]), "extender-names", "fail",
        "railwright-extender.railwright-system.svc"),
    "another service": (put_hook("pods.railwright.io", "rw", "clientConfig", "service", "name"), "entries-target",
                        "fail",
                        "calls Service railwright-system/rw"),
    "another host": (another_host, "webhook-names", "fail", f"{WEBHOOK}.railwright-system.svc"),
    "expired": (certificate(days=30, left=-1), "webhook-validity", "fail", "expired"),
    "a future": (certificate(days=30, left=31), "webhook-validity", "fail", "valid only from"),
    "soon": (certificate(days=90, left=20), "webhook-validity", "warn", "20 days left of 90 days"),
    "no extender secret": (clear(f"{EXTENDER}-secret"), "extender-secret", "fail", "does not exist"),
    "extender's other key": (lambda t: t[f"{EXTENDER}-secret"][0]["data"].update(
        {"tls.key": t[f"{WEBHOOK}-secret"][0]["data"]["tls.key"]}), "extender-pair", "fail", "not the key"),
    "extender soon": (certificate(EXTENDER, days=90, left=20), "extender-validity", "warn", "20 days"),
    "another authority": (foreign_bundle, "ca-bundle", "fail", "bindings.railwright.io"),
    "an empty bundle": (put_hook("policy.railwright.io", "", "clientConfig", "caBundle"), "ca-bundle", "fail",
                        "no caBundle"),
    "the authority ends": (old_authority, "ca-validity", "warn", "20 days"),
    "nobody rotates": (unrotated, "certs-rotation", "warn", "are not renewed"),
    "no configuration": (clear("mutating"), "mutating-configuration", "fail", "does not call the webhook"),
    "no validation": (clear("validating"), "validating-configuration", "fail", "does not call the webhook"),
    "an entry short": (lambda t: t["mutating"][0]["webhooks"].pop(), "entries-complete", "fail",
                       "bindings.railwright.io"),
    "an entry too many": (lambda t: t["mutating"][0]["webhooks"].append(
        {**hook(t, "bindings.railwright.io"), "name": "x.railwright.io"}), "entries-complete", "warn",
        "x.railwright.io"),
    "a wrong path": (put_hook("pods.railwright.io", "/mutate", "clientConfig", "service", "path"), "entries-target",
                     "fail",
                     "/mutate, not /mutate/pods"),
    "a rule short": (put_hook("workloads.railwright.io", [], "rules"), "entries-rules", "fail",
                     "CREATE apps/deployments"),
    "a wide selector": (put_hook("pods.railwright.io", {}, "objectSelector"), "entries-selectors", "fail", "empty"),
    "a condition short": (put_hook("templates.railwright.io", [], "matchConditions"), "entries-selectors", "fail",
                          "opts-in"),
    "kube-system": (put_hook("bindings.railwright.io", {}, "namespaceSelector"), "entries-exclusions", "fail",
                    "kube-system and railwright-system"),
    "open": (put_hook("pods.railwright.io", "Ignore", "failurePolicy"), "failure-policy", "warn", "Ignore"),
    "closed": (put_hook("bindings.railwright.io", "Fail", "failurePolicy"), "failure-policy", "warn",
               "also blocks pods"),
    "too patient": (put_hook("pods.railwright.io", 30, "timeoutSeconds"), "timeouts", "warn", "timeoutSeconds 30"),
    "too many": (other_webhook("aa", 30), "timeouts", "warn", "aa/other.example.com"),
    "never again": (not_reinvoked, "webhook-order", "fail", "zz-sidecars/other.example.com"),
    "no policy": (clear("policy"), "policy-exists", "fail", "does not exist"),
    "no key": (lambda t: t["policy"][0].update(data={"x": ""}), "policy-exists", "fail", "it has x"),
    "a bad policy": (repolicy("transport: roce", "transport: rocev2"), "policy-valid", "fail",
                     "line 7: fabrics.roce.transport"),
    "no default": (lambda t: (repolicy("defaultFabric: roce\n", "")(t), drop("namespaces", "train")(t)),
                   "default-fabric",
                   "warn", "none"),
    "a namespace's typing": (refused_pods, "namespace-labels", "fail", "'nvlink'"),
    "no GPUs": (every_node(lambda n: [n["status"][w].pop("nvidia.com/gpu") for w in ("capacity", "allocatable")]),
                "accelerators", "warn", "none of 3 nodes"),
    "no network": (drop("networks", "rail1"), "rail-networks", "fail", "rail1: prod/rail1"),
    "no json": (put("networks", "rail0", "{", "spec", "config"), "rail-configurations", "fail", "prod/rail0"),
    "another pool": (put("networks", "rail0", {names.NAD_RESOURCE_NAME: "intel.com/x"}, "metadata", "annotations"),
                     "rail-pools", "fail", "intel.com/x"),
    "nowhere": (every_node(lambda n: [n["status"][w].pop("nvidia.com/mlx5_0") for w in ("capacity", "allocatable")]),
                "rail-offered", "fail", "nvidia.com/mlx5_0"),
    "dead": (put("nodes", "gpu-1", "0", "status", "allocatable", "nvidia.com/mlx5_1"), "rail-dead", "warn",
             "gpu-1: nvidia.com/mlx5_1 0 of 1"),
    "bare": (lambda t: [named(t, "nodes", "gpu-2")["status"][w].pop("nvidia.com/mlx5_0") for w in ("capacity",
             "allocatable")],
             "rail-missing", "warn", "gpu-2 lacks nvidia.com/mlx5_0"),
    "a shape of nobody": (repolicy("nodeShapes:", "nodeShapes:\n- {name: b200, match: {shape: b200}}"), "node-shapes",
                          "warn",
                          "b200"),
    "no device": (repolicy("  devices: {rail0: mlx5_0, rail1: mlx5_1}\n", ""), "rail-devices", "warn",
                  "rail0 on gpu-0"),
    "no leaf": (every_node(no_labels), "domain-labels", "fail", LEAF),
    "one leaf short": (lambda t: no_labels(named(t, "nodes", "gpu-0")), "domain-labels", "warn", "gpu-0"),
    "no hypernode": (clear("hypernodes"), "hypernodes", "fail", "no HyperNode"),
    "a node outside": (lambda t: t["hypernodes"][0]["spec"]["members"].pop(), "hypernodes", "warn", "gpu-2"),
    "no guard": (clear("admission-policies"), "admission-policy", "warn", "no ValidatingAdmissionPolicy"),
    "a loose guard": (clear("admission-bindings"), "admission-policy", "fail", "Binding"),
    "a mild guard": (lambda t: [b["spec"].update(validationActions=["Warn"]) for b in t["admission-bindings"]],
                     "admission-policy", "warn", "without Deny"),
    "no extender's pod": (put("deployments", EXTENDER, 0, "status", "readyReplicas"), "extender-replicas", "fail",
                          "0 of"),
    "a stale lease": (stale_lease, "extender-lease", "fail", "180 s ago"),
    "no holder": (put("leases", EXTENDER, "", "spec", "holderIdentity"), "extender-lease", "fail", "no holder"),
    "no extender's address": (drop("slices", EXTENDER), "extender-endpoints", "fail", "no EndpointSlice"),
    "volcano elsewhere": (volcano("name: extender", "name: extended"), "volcano-configuration", "warn",
                          "does not call"),
    "volcano's text": (volcano("ignorable: true", 'ignorable: "true"'), "volcano-configuration", "fail", "ignorable"),
    "volcano's verb": (volcano("allocateFuncVerb: allocate", "allocateFuncVerb: assign"), "volcano-configuration",
                       "fail",
                       "assign, not allocate"),
    "volcano's http": (volcano("https://railwright", "http://railwright"), "volcano-configuration", "fail",
                       "serves https"),
    "volcano's pools": (volcano("- nvidia.com/mlx5_1\n", "- x/y\n"), "volcano-configuration", "fail",
                        "nvidia.com/mlx5_1"),
    "kube's verb": (kube("nodeCacheCapable: true", "nodeCacheCapable: false"), "kube-scheduler-configuration", "fail",
                    "nodeCacheCapable"),
    "kube elsewhere": (kube(":8713/scheduler", ":8713/other"), "kube-scheduler-configuration", "warn", "does not call"),
    "a bare pod": (lambda t: t["pods"].append(installations.pod("bare", {names.FABRIC: "roce"}, {})), "uninjected",
                   "fail",
                   "train/bare"),
    "a refusal": (refusal, "refused", "warn", "Job train/llm: rail9 is no rail"),
}  # fmt: skip


def test_a_healthy_cluster_passes_every_row():
    results = judged(installations.healthy())
    assert wrong(results) == set()
    assert {each.check for each in results} == {a for a, row in ROWS.items() if row.when is not check_rows.Phase.BEFORE}
    assert not any(each.hint or each.link for each in results)


@pytest.mark.parametrize("name", BREAKS)
def test_a_break_is_told_by_its_row_alone_with_what_to_do(name):
    change, anchor, state, words = BREAKS[name]
    trees = installations.healthy()
    change(trees)
    results = judged(trees)
    assert wrong(results) == {anchor}, [(each.check, each.detail) for each in results if each.check in wrong(results)]
    found = [each for each in results if each.check == anchor and each.state == state]
    assert found, [(each.state, each.detail) for each in results if each.check == anchor]
    assert words in " ".join(each.detail for each in found)
    assert all(each.hint for each in found)
    assert {each.link for each in found} == {f"https://railwright.io/docs/check/#{anchor}"}


def test_every_row_is_broken_above_or_below():
    elsewhere = {
        "api-reachable", "caller-permissions", "dry-run", "policy-in-force", "multus", "numa-topologies",
        "install-permissions", "device-pools", "volcano", "extender-deployment",
    }  # fmt: skip
    assert set(ROWS) == {anchor for _, anchor, _, _ in BREAKS.values()} | elsewhere


def test_without_an_answer_of_the_api_server_all_other_rows_wait():
    unread = {source.name: "no answer" for source in snapshots.SOURCES}
    results = check_rows.run_checks(command.GROUPS, snapshots.ClusterSnapshot(names.NAMESPACE, NOW, unread=unread))
    assert [each.check for each in results if each.state is check_rows.State.FAIL] == ["api-reachable"]
    assert {each.detail for each in results[1:]} == {"fix api-reachable first"}


@pytest.mark.parametrize("source", [each.name for each in snapshots.SOURCES if each.name != "version"])
def test_what_the_caller_may_not_read_is_skipped_with_the_reason_and_nothing_fails(source):
    trees = installations.healthy()
    right = f"list {source}"
    trees[source].clear()
    dry_runs = installations.seen(installations.healthy()).dry_runs
    more = {"unread": {source: f"you may not {right} (403 Forbidden)"}, "forbidden": (right,)}
    results = judged(trees, dry_runs=dry_runs, **more)
    assert wrong(results) == {"caller-permissions"}, [(e.check, e.detail) for e in results if e.check in wrong(results)]


def test_without_the_right_to_read_secrets_the_ca_bundle_is_judged_alone():
    trees = installations.healthy()
    forbidden = {f"{server}-secret": "you may not get secrets" for server in (WEBHOOK, EXTENDER)}
    for source in forbidden:
        trees[source].clear()
    told = {each.check: each for each in judged(trees, unread=forbidden)}
    assert told["webhook-secret"].state is check_rows.State.SKIP
    assert told["ca-bundle"].state is check_rows.State.OK
    assert "not readable" in told["ca-bundle"].detail
    hook(trees, "pods.railwright.io")["clientConfig"]["caBundle"] = "eA=="
    told = {each.check: each for each in judged(trees, unread=forbidden)}
    assert told["ca-bundle"].state is check_rows.State.FAIL


@pytest.mark.parametrize(
    ("dry_run", "check", "state", "words"),
    [
        (snapshots.DryRun("roce", "default", refusal="failed calling webhook: x509"), "dry-run", "fail", "x509"),
        (snapshots.DryRun("roce", "default", pod={"metadata": {}}), "dry-run", "fail", "did not call the webhook"),
        (snapshots.DryRun("roce", "default", refusal="no", forbidden=True), "dry-run", "skip", "--namespace-for-probe"),
        (snapshots.DryRun("roce", problem="no namespace may use fabric roce"), "dry-run", "skip", "no namespace"),
        (snapshots.DryRun("roce", "default",
                          pod={"metadata": {"annotations": {names.INJECTION: '{"policy": "sha256:0"}'}}}),
         "policy-in-force", "fail", "sha256:0"),
        (snapshots.DryRun("roce", "default", pod={"metadata": {"annotations": {names.INJECTION: "[]"}}}),
         "policy-in-force", "fail", "an unknown policy"),
    ],
)  # fmt: skip
def test_a_dry_run_tells_what_the_api_server_did(dry_run, check, state, words):
    results = judged(installations.healthy(), dry_runs=(dry_run,))
    (found,) = [each for each in results if each.check == check]
    assert (found.state, found.subject) == (state, "roce")
    assert words in found.detail
    assert wrong(results) == ({check} if state == "fail" else set())


def test_rails_with_networks_need_multus_and_others_do_not():
    trees = installations.healthy()
    trees["networks"].clear()
    results = judged(trees, unknown=frozenset({"networks"}))
    assert wrong(results) == {"multus"}
    repolicy("network: prod/rail0, ", "")(trees)
    repolicy("network: prod/rail1, ", "resource: nvidia.com/mlx5_1, ")(trees)
    assert wrong(judged(trees, unknown=frozenset({"networks"}))) == set()


def test_required_numa_wants_reports_or_shapes():
    trees = installations.healthy()
    trees["topologies"].clear()
    assert wrong(judged(trees)) == set(), "the shapes tell"
    text = trees["policy"][0]["data"][names.POLICY_KEY]
    trees["policy"][0]["data"][names.POLICY_KEY] = text[: text.index("  numa:\n  -")]
    assert wrong(judged(trees)) == {"numa-topologies"}


def test_an_extender_that_is_not_installed_is_no_failure():
    trees = installations.healthy()
    drop("deployments", EXTENDER)(trees)
    clear(f"{EXTENDER}-secret")(trees)
    told = {each.check: each for each in judged(trees)}
    assert told["extender-deployment"].state is check_rows.State.SKIP
    assert not wrong(told.values())


def test_a_webhook_called_by_url_is_judged_by_the_urls_host():
    trees = installations.healthy()
    for source in ("mutating", "validating"):
        for each in trees[source][0]["webhooks"]:
            service = each["clientConfig"].pop("service")
            each["clientConfig"]["url"] = f"https://127.0.0.1:9443{service['path']}"
    assert wrong(judged(trees)) == {"webhook-names"}
    leaf, authority = installations.pair("127.0.0.1")
    trees[f"{WEBHOOK}-secret"][0]["data"] = installations.secret(leaf)["data"]
    installations.trust(trees, authority)
    assert wrong(judged(trees)) == set()


def test_certificates_under_an_intermediate_authority_are_trusted_by_their_root():
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def certificate_of(name, signer=None):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        above = signer[0].subject if signer else subject
        hosts = x509.SubjectAlternativeName([x509.DNSName(f"{WEBHOOK}.{names.NAMESPACE}.svc")])
        builder = (
            x509.CertificateBuilder(above, subject, key.public_key(), 7 + len(name), NOW - DAY, NOW + 300 * DAY)
            .add_extension(x509.BasicConstraints(ca=name != "leaf", path_length=None), critical=True)
            .add_extension(hosts, critical=False)
        )
        return builder.sign(signer[1] if signer else key, hashes.SHA256()), key

    root = certificate_of("root")
    middle = certificate_of("middle", root)
    leaf = certificate_of("leaf", middle)
    pem = serialization.Encoding.PEM
    key = leaf[1].private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    chain = leaf[0].public_bytes(pem) + middle[0].public_bytes(pem)
    trees = installations.healthy()
    data = {"tls.crt": base64.b64encode(chain).decode(), "tls.key": base64.b64encode(key).decode()}
    trees[f"{WEBHOOK}-secret"][0]["data"] = data
    for source in ("mutating", "validating"):
        for each in trees[source][0]["webhooks"]:
            each["clientConfig"]["caBundle"] = base64.b64encode(root[0].public_bytes(pem)).decode()
    assert wrong(judged(trees)) == set()
    data["tls.crt"] = base64.b64encode(leaf[0].public_bytes(pem)).decode()
    assert wrong(judged(trees)) == {"ca-bundle"}, "without the one in the middle nobody can tell"
    chain = leaf[0].public_bytes(pem) + root[0].public_bytes(pem)
    data["tls.crt"] = base64.b64encode(chain).decode()
    assert wrong(judged(trees)) == {"ca-bundle"}, "a trusted root beside it does not make it trusted"


def test_pods_of_a_namespace_that_opts_in_count_when_they_ask_for_an_accelerator():
    def pods(*trees):
        from railwright.fabric import views

        return tuple(msgspec.convert(each, views.Pod) for each in trees)

    trained, other = installations.pod("trained", {}, {}, gpus=1), installations.pod("other", {}, {})
    trees = installations.healthy()
    assert wrong(judged(trees, namespaced_pods=pods(other))) == set()
    results = judged(trees, namespaced_pods=pods(trained, other))
    (found,) = [each for each in results if each.state is check_rows.State.FAIL]
    assert (found.check, found.detail) == ("uninjected", "1 of 2: train/trained")


@pytest.mark.parametrize("name", missed_pods.CASES)
def test_the_check_counts_what_every_other_judge_of_missed_pods_counts(name):
    case, trees = missed_pods.CASES[name], installations.healthy()
    trees["namespaces"] = [each for each in trees["namespaces"] if snapshots.get_name(each) != case.namespace]
    labels = {"kubernetes.io/metadata.name": case.namespace, **case.namespace_labels}
    trees["namespaces"].append({"metadata": {"name": case.namespace, "labels": labels}})
    for each in (hook(trees, "pods.railwright.io"), hook(trees, "namespaced-pods.railwright.io")):
        [excluding] = [e for e in each["namespaceSelector"]["matchExpressions"] if e["key"].endswith("metadata.name")]
        excluding["values"] += sorted(case.excluded)
    tree, unlabelled = missed_pods.pod(case), ()
    if names.FABRIC in tree["metadata"].get("labels", {}):
        trees["pods"].append(tree)
    elif case.namespace_labels:
        unlabelled = (msgspec.convert(tree, views.Pod),)
    [row] = [each for each in judged(trees, namespaced_pods=unlabelled) if each.check == "uninjected"]
    if case.label is None:
        assert row.state is check_rows.State.OK, row.detail
    else:
        assert row.state is check_rows.State.FAIL
        assert f"{case.namespace}/p" in row.detail


def test_pods_that_the_check_does_not_judge_are_not_among_those_it_counts():
    trees = installations.healthy()
    mirror = installations.pod("static", {names.FABRIC: "roce"}, {"kubernetes.io/config.mirror": "x"})
    trees["pods"].append(mirror)
    [row] = [each for each in judged(trees) if each.check == "uninjected"]
    assert (row.state, row.detail) == (check_rows.State.OK, "1 pod")


def test_where_no_policy_exists_yet_the_replicas_row_says_that_no_server_is_ready_without():
    trees = installations.healthy()
    trees["policy"] = []
    for each in trees["deployments"]:
        if each["metadata"]["name"] in (WEBHOOK, EXTENDER):
            each["status"] = {"replicas": 2}
    rows = {each.check: each for each in judged(trees)}
    create = "kubectl -n railwright-system create configmap railwright-policy --from-file=policy.yaml"
    for each in ("webhook-replicas", "extender-replicas"):
        assert rows[each].state is check_rows.State.FAIL
        assert (
            "replicas need a policy to become ready, and ConfigMap railwright-policy does not exist"
            in rows[each].detail
        )
        assert create in rows[each].hint
    assert create in rows["policy-exists"].hint
    certs = {"metadata": {"name": "railwright-certs"}, "spec": {"replicas": 2}, "status": {}}
    verdict = installation.check_replicas(installations.seen(trees), certs)
    assert "policy" not in verdict.detail, "the rotator needs none"


def test_one_replica_of_the_webhook_is_a_warning_and_can_be_drained():
    trees = installations.healthy()
    one_replica(trees)
    rows = {each.check: each for each in judged(trees)}
    assert rows["webhook-availability"].state is check_rows.State.WARN
    assert "1 replica: opted-in pods cannot be created while it restarts or its node is drained" in (
        rows["webhook-availability"].detail
    )
    assert rows["webhook-budget"].state is check_rows.State.OK


@pytest.mark.parametrize("limit", [{"minAvailable": 2}, {"maxUnavailable": 0}])
def test_a_budget_that_lets_no_pod_go_is_told_by_what_it_says(limit):
    trees = installations.healthy()
    budget = named(trees, "budgets", WEBHOOK)
    budget["spec"] = {"selector": budget["spec"]["selector"], **limit}
    budget["status"] = {"disruptionsAllowed": 0, "currentHealthy": 2}
    [row] = [each for each in judged(trees) if each.check == "webhook-budget"]
    [(key, value)] = limit.items()
    assert row.state is check_rows.State.WARN
    assert f"({key} {value}) allows no eviction" in row.detail
    assert "maxUnavailable 1" in row.hint


def test_what_the_admission_policy_takes_for_an_accelerator_and_the_policy_does_not_is_told():
    trees = installations.healthy()
    repolicy("defaultFabric: roce", "defaultFabric: roce\naccelerators: [amd.com/gpu]")(trees)
    guard = named(trees, "admission-policies", "railwright-injected-by-namespace")
    [condition] = [each for each in guard["spec"]["matchConditions"] if each["name"] == "asks-for-an-accelerator"]
    condition["expression"] = condition["expression"].replace("['nvidia.com/gpu']", "['amd.com/gpu', 'nvidia.com/gpu']")
    [found] = [each for each in judged(trees) if each.check == "admission-policy"]
    assert found.state is check_rows.State.WARN
    assert "lists nvidia.com/gpu, which is not an accelerator" in found.detail


def test_the_policys_accelerators_have_to_be_in_the_admission_policy():
    trees = installations.healthy()
    repolicy("defaultFabric: roce", "defaultFabric: roce\naccelerators: [nvidia.com/gpu, amd.com/gpu]")(trees)
    results = judged(trees)
    assert wrong(results) == {"admission-policy"}
    assert "amd.com/gpu" in next(each.detail for each in results if each.check == "admission-policy")


def test_before_an_installation_every_kind_of_the_manifests_is_asked_about():
    from railwright.cli.checking import kubernetes

    base = pathlib.Path(__file__).parents[3] / "manifests" / "base"
    made = [each for path in base.glob("*.yaml") for each in yaml.safe_load_all(path.read_text())]
    kinds = {
        ("create", each["apiVersion"].rpartition("/")[0], re.sub("ys$", "ies", each["kind"].lower() + "s"))
        for each in made
        if each["kind"] != "Kustomization"
    }
    assert set(kubernetes.INSTALL_PERMISSIONS) == kinds


def test_before_an_installation_the_cluster_is_looked_at_and_nothing_of_ours_is_missed():
    from railwright.cli.checking import kubernetes

    empty = {each.name: [] for each in snapshots.SOURCES}
    whole = installations.healthy()
    empty |= {name: whole[name] for name in ("version", "nodes", "namespaces")}
    may = {kubernetes.format_permission(*each): True for each in kubernetes.INSTALL_PERMISSIONS}
    more = {"may": may, "unknown": frozenset({"networks", "queues"}), "dry_runs": ()}
    results = judged(empty, before=True, **more)
    assert {each.check for each in results} == {a for a, r in ROWS.items() if r.when is not check_rows.Phase.INSTALLED}
    assert wrong(results) == {"multus"}, "a warning: networks may not be needed"
    told = {each.check: each for each in results}
    assert told["device-pools"].detail == "nvidia.com/mlx5_0 on 3, nvidia.com/mlx5_1 on 3"
    assert told["volcano"].state is check_rows.State.SKIP
    denied = {**may, "create clusterroles.rbac.authorization.k8s.io": False}
    assert "install-permissions" in wrong(judged(empty, before=True, **{**more, "may": denied}))
    for node in empty["nodes"]:
        node["status"] = {}
    assert "device-pools" in wrong(judged(empty, before=True, **more))


def test_hostile_objects_raise_nothing():
    trees = installations.healthy()
    put("networks", "rail0", json.dumps([1]), "spec", "config")(trees)
    trees["volcano"][0]["data"] = {"volcano-scheduler.conf": "tiers: [1, {plugins: [2, {name: extender}]}]"}
    trees["kube-system"][0]["data"] = {"x": "KubeSchedulerConfiguration: {"}
    trees["leases"][0]["spec"]["renewTime"] = "soon"
    for node in trees["nodes"]:
        node["status"]["capacity"]["nvidia.com/gpu"] = "many"
    assert wrong(judged(trees)) >= {"rail-configurations", "volcano-configuration", "kube-scheduler-configuration"}


def test_a_second_scheduler_that_does_not_ask_us_is_no_finding():
    trees = installations.healthy()
    other = {"config.yaml": "kind: KubeSchedulerConfiguration\nprofiles: []"}
    trees["kube-system"].insert(0, {"metadata": {"name": "a-second-scheduler"}, "data": other})
    assert wrong(judged(trees)) == set()


def test_rotation_is_the_deployments_whose_replicas_are_ready_and_hold_the_lease():
    trees = installations.healthy()
    unrotated(trees)
    spec = {"replicas": 2, "selector": {"matchLabels": {"c": "certs"}}, "template": {"metadata": {"labels": {}}}}
    deployment = {"metadata": {"name": snapshots.CERTS}, "spec": spec, "status": {"readyReplicas": 2}}
    trees["deployments"].append(deployment)
    told = {each.check: each for each in judged(trees)}
    assert told["certs-rotation"].detail == "by pod-a"
    named(trees, "leases", snapshots.CERTS)["spec"]["renewTime"] = "2026-01-01T00:00:00.000000Z"
    assert wrong(judged(trees)) == {"certs-rotation"}
    deployment["status"]["readyReplicas"] = 1
    told = {each.check: each for each in judged(trees)}
    assert told["certs-rotation"].detail == "1 of 2 ready"
    assert told["certs-rotation"].state is check_rows.State.FAIL
