"""Checks the rights of pods, roles and networks of every Deployment and ServiceAccount in the manifests.

These are promises of docs/security.md about threats T5, T8, T9, T14 and T18.
"""

import pathlib
from collections.abc import Iterator

import jsonpatch
import pytest
import yaml

from railwright.fabric import names
from railwright.fabric.injection import opt_in
from railwright.serving import ports, settings

ROOT = pathlib.Path(__file__).parents[3]
BASE = ROOT / "manifests" / "base"
CLAIMS = ROOT / "manifests" / "components" / "claims" / "rbac.yaml"  # fewer installations have these rights
OUTSIDE = {"kube-system", names.NAMESPACE}
CLOSED_LEVEL = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
READING = {"get", "list", "watch"}
# Verbs that change something, cluster-wide and on any name: what Kubernetes offers no narrower way for.
ANYWHERE = {
    ("create", "events"),
    ("create", "tokenreviews"),
    ("create", "subjectaccessreviews"),
    ("create", "resourceclaimtemplates"),  # in the namespaces of the pods that name them
}
PRIVATE = {"secrets", "configmaps"}  # read by name only


DOCUMENTS = [
    document
    for path in (*sorted(BASE.glob("*.yaml")), CLAIMS)
    for document in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader)
    if document
]


def objects(kind: str) -> list[dict]:
    return [document for document in DOCUMENTS if document["kind"] == kind]


DEPLOYMENTS = {deployment["metadata"]["name"]: deployment["spec"] for deployment in objects("Deployment")}
ACCOUNTS = [account["metadata"]["name"] for account in objects("ServiceAccount")]
POLICIES = {policy["metadata"]["name"]: policy["spec"] for policy in objects("NetworkPolicy")}
every_deployment = pytest.mark.parametrize("name", DEPLOYMENTS)


def pod_of(name: str) -> dict:
    return DEPLOYMENTS[name]["template"]["spec"]


def matches_selector(selector: dict, labels: dict) -> bool:
    return selector.get("matchLabels", {}).items() <= labels.items()


def rules(account: str) -> Iterator[tuple[dict, bool]]:
    """Yield the rules of an account, each with True if it applies in all namespaces."""
    roles = {
        (role["kind"], role["metadata"]["name"]): role for kind in ("Role", "ClusterRole") for role in objects(kind)
    }
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        for binding in objects(kind):
            if any(subject["name"] == account for subject in binding["subjects"]):
                role = roles[binding["roleRef"]["kind"], binding["roleRef"]["name"]]
                yield from ((rule, kind == "ClusterRoleBinding") for rule in role["rules"])


@every_deployment
def test_t14_containers_run_unprivileged_with_a_memory_limit(name):
    pod = pod_of(name)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert not any("hostPath" in volume for volume in pod.get("volumes", ()))
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        assert container["securityContext"].items() >= CLOSED_LEVEL.items()
        assert "privileged" not in container["securityContext"]
        assert "memory" in container["resources"]["limits"], "a hostile load ends one pod, not its node"


@pytest.mark.parametrize("account", ACCOUNTS)
def test_t14_service_accounts_mount_no_token_by_default(account):
    (service_account,) = [
        candidate for candidate in objects("ServiceAccount") if candidate["metadata"]["name"] == account
    ]
    assert service_account["automountServiceAccountToken"] is False
    assert account in {pod_of(name).get("serviceAccountName") for name in DEPLOYMENTS}, "nobody needs it"


@every_deployment
def test_t14_a_pod_mounts_a_short_lived_token(name):
    pod = pod_of(name)
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert pod["shareProcessNamespace"] is True, "and one container, so that nobody sees another's processes"
    assert len(pod["containers"]) == 1
    assert pod["securityContext"].items() >= {"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532}.items()
    mounted = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert mounted["account"] == "/var/run/secrets/kubernetes.io/serviceaccount"
    for volume in pod["volumes"]:
        (source,) = (volume[key] for key in ("secret", "projected") if key in volume)
        assert source["defaultMode"] == 0o440, "kubelet gives it to fsGroup, and to nobody else"
    (account,) = [volume["projected"] for volume in pod["volumes"] if volume["name"] == "account"]
    (token,) = [source["serviceAccountToken"] for source in account["sources"] if "serviceAccountToken" in source]
    assert token["expirationSeconds"] <= 3607


def test_t14_without_claims_the_webhook_reads_no_claim_templates_and_watches_no_pods():
    """The component for claims, and the chart's value webhook.claims, give these rights."""
    granted = {"base": set(), "claims": set()}
    for role in objects("ClusterRole"):
        if "webhook" in role["metadata"]["name"]:
            place = "claims" if role["metadata"]["name"].endswith("-claims") else "base"
            granted[place] |= {
                (verb, name) for rule in role["rules"] for verb in rule["verbs"] for name in rule["resources"]
            }
    templates = {(verb, "resourceclaimtemplates") for verb in ("list", "watch", "create")}
    assert granted["claims"] == {("watch", "pods"), *templates}
    assert not granted["claims"] & granted["base"]
    assert ("list", "pods") in granted["base"], "to count the pods of a fabric that a policy removes"


@pytest.mark.parametrize("account", ACCOUNTS)
def test_t14_service_accounts_may_change_only_named_objects(account):
    for rule, everywhere in rules(account):
        assert "*" not in {*rule["verbs"], *rule["resources"], *rule["apiGroups"]}
        named = bool(rule.get("resourceNames"))
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                if verb in READING:
                    assert resource not in PRIVATE or named, f"{account} may {verb} every one of {resource}"
                elif everywhere:
                    assert named or (verb, resource) in ANYWHERE, f"{account} may {verb} {resource} anywhere"
                elif verb != "create":  # a name cannot limit what does not exist yet
                    assert named, f"{account} may {verb} every one of {resource} in {names.NAMESPACE}"


def test_t05_roles_for_users_grant_only_read_access():
    bound = {binding["roleRef"]["name"] for kind in ("RoleBinding", "ClusterRoleBinding") for binding in objects(kind)}
    aggregated = []
    for role in (*objects("Role"), *objects("ClusterRole")):
        name = role["metadata"]["name"]
        if any("aggregate-to" in key for key in role["metadata"].get("labels", {})):
            aggregated.append(name)
            assert {resource for rule in role["rules"] for resource in rule["resources"]} == {"podgroups"}
        if name not in bound:  # a role for people
            assert {verb for rule in role["rules"] for verb in rule["verbs"]} <= READING, name
    assert aggregated == ["railwright-view"]
    for account in ACCOUNTS:
        for rule, _ in rules(account):
            if names.POLICY_CONFIGMAP in rule.get("resourceNames", ()):
                assert set(rule["verbs"]) <= READING


def test_t05_the_namespace_of_the_policy_enforces_the_restricted_level():
    (namespace,) = objects("Namespace")
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


@pytest.mark.parametrize("name", ["railwright-webhook", "railwright-extender"])
def test_a_drain_evicts_one_replica_at_a_time(name):
    labels = DEPLOYMENTS[name]["template"]["metadata"]["labels"]
    (budget,) = [b["spec"] for b in objects("PodDisruptionBudget") if matches_selector(b["spec"]["selector"], labels)]
    assert budget["maxUnavailable"] == 1, "minAvailable 1 holds up the drain of a node that has the only replica"
    assert "minAvailable" not in budget
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow", "not ready for a bad policy: every drain would wait"
    assert pod_of(name)["priorityClassName"].startswith("system-")


@every_deployment
def test_replicas_spread_over_nodes_if_there_are_two(name):
    """kube-scheduler's result is in tests/integration/test_spread.py."""
    (hosts,) = [
        constraint
        for constraint in pod_of(name)["topologySpreadConstraints"]
        if constraint["topologyKey"] == "kubernetes.io/hostname"
    ]
    assert (hosts["maxSkew"], hosts["whenUnsatisfiable"]) == (1, "DoNotSchedule")
    assert hosts["nodeTaintsPolicy"] == "Honor", "a control plane's tainted node would count as a free one"
    assert hosts["matchLabelKeys"] == ["pod-template-hash"], "a rollout could end with both on one node"
    assert hosts["labelSelector"] == DEPLOYMENTS[name]["selector"]
    affinity = pod_of(name)["affinity"]["podAntiAffinity"]
    assert "requiredDuringSchedulingIgnoredDuringExecution" not in affinity, "it would stop a rollout on one node"


def test_code_and_admission_policy_have_the_same_annotation_limit_and_namespaces():
    for policy in objects("ValidatingAdmissionPolicy"):
        if policy["metadata"]["name"].startswith("railwright-injected"):
            (validation,) = policy["spec"]["validations"]
            assert f".sum() > {opt_in.FULL}" in validation["expression"]
            left = left_out(policy["spec"]["matchConstraints"]["namespaceSelector"])
            assert left == opt_in.ALWAYS_EXCLUDED


@pytest.mark.parametrize("name", ["railwright-webhook", "railwright-extender", "railwright-certs"])
def test_startup_probes_give_a_server_three_minutes_to_start(name):
    container = pod_of(name)["containers"][0]
    startup = container["startupProbe"]
    assert startup["httpGet"] == container["livenessProbe"]["httpGet"]  # readiness may wait for the cluster
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 180
    assert "initialDelaySeconds" not in container["livenessProbe"]  # it is the startup probe that waits


def test_the_webhook_has_two_replicas_and_a_drain_period():
    spec = DEPLOYMENTS["railwright-webhook"]
    pod = spec["template"]["spec"]
    assert spec["replicas"] >= 2
    assert spec["strategy"]["rollingUpdate"]["maxUnavailable"] == 0
    labels = spec["template"]["metadata"]["labels"]
    (term,) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    (zones,) = [
        constraint for constraint in pod["topologySpreadConstraints"] if constraint["topologyKey"].endswith("/zone")
    ]
    assert zones["whenUnsatisfiable"] == "ScheduleAnyway"
    assert matches_selector(term["podAffinityTerm"]["labelSelector"], labels)
    assert matches_selector(zones["labelSelector"], labels)
    options = settings.parse("webhook", ["--plain-http", "--listen=127.0.0.1:0"])
    ends = options.drain_seconds + 2 * ports.FINISH_SECONDS
    longest = max(hook["timeoutSeconds"] for hook in hooks())
    assert pod["terminationGracePeriodSeconds"] >= ends + longest, "killed in the middle of an answer"
    probe = pod["containers"][0]["readinessProbe"]
    assert probe["periodSeconds"] * probe.get("failureThreshold", 3) < options.drain_seconds, "noticed while it drains"


def hooks() -> list[dict]:
    kinds = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    return [hook for kind in kinds for configuration in objects(kind) for hook in configuration["webhooks"]]


def opting_in(selector: dict) -> bool:
    """True if a selector requires the label with another value than `none`."""
    expressions = selector.get("matchExpressions", ())
    opts_out = {"key": names.FABRIC, "operator": "NotIn", "values": [names.FABRIC_NONE]}
    return {"key": names.FABRIC, "operator": "Exists"} in expressions and opts_out in expressions


def left_out(selector: dict) -> set[str]:
    rows = [
        expression
        for expression in selector.get("matchExpressions", ())
        if expression["key"] == "kubernetes.io/metadata.name"
    ]
    return {value for row in rows if row["operator"] == "NotIn" for value in row["values"]}


def test_t18_an_outage_of_the_webhook_affects_only_opted_in_pods():
    for hook in hooks():
        assert hook["timeoutSeconds"] <= 5
        if hook["name"] == "policy.railwright.io":
            assert hook["failurePolicy"] == "Ignore"
            continue
        assert left_out(hook["namespaceSelector"]) >= OUTSIDE, hook["name"]
        if hook["failurePolicy"] != "Ignore":
            assert opting_in(hook["objectSelector"]) or opting_in(hook["namespaceSelector"]), hook["name"]
        if any(rule["resources"] == ["pods"] for rule in hook["rules"]):
            assert "is-no-mirror-pod" in {condition["name"] for condition in hook["matchConditions"]}, hook["name"]


def test_webhook_and_admission_policies_select_the_same_objects():
    """Otherwise the policies would deny a pod that needs no injection, or accept one without its injection."""
    constraints = {policy["metadata"]["name"]: policy["spec"] for policy in objects("ValidatingAdmissionPolicy")}
    for policy, webhook in (
        ("railwright-injected", "pods.railwright.io"),
        ("railwright-injected-by-namespace", "namespaced-pods.railwright.io"),
    ):
        (hook,) = [hook for hook in hooks() if hook["name"] == webhook]
        match = constraints[policy]["matchConstraints"]
        assert match["objectSelector"] == hook["objectSelector"]
        assert match["namespaceSelector"] == hook["namespaceSelector"]
        assert match["resourceRules"] == hook["rules"]
        assert hook["matchConditions"][0] in constraints[policy]["matchConditions"]
    for spec in constraints.values():
        assert left_out(spec["matchConstraints"]["namespaceSelector"]) >= OUTSIDE
    policy = yaml.safe_load(objects("ConfigMap")[0]["data"][names.POLICY_KEY])
    (condition,) = [
        condition["expression"]
        for condition in constraints["railwright-injected-by-namespace"]["matchConditions"]
        if condition["name"] == "asks-for-an-accelerator"
    ]
    assert str(policy["accelerators"]) in condition, "the accelerators of the shipped policy, as CEL writes a list"


def test_every_admission_policy_denies_unless_a_namespace_asks_for_warnings():
    bindings = objects("ValidatingAdmissionPolicyBinding")
    warned = {"matchExpressions": [{"key": names.UNINJECTED, "operator": "NotIn", "values": ["warn"]}]}
    for policy in objects("ValidatingAdmissionPolicy"):
        name = policy["metadata"]["name"]
        mine = [binding["spec"] for binding in bindings if binding["spec"]["policyName"] == name]
        (denying,) = [binding for binding in mine if binding["validationActions"] == ["Deny", "Audit"]]
        others = [binding for binding in mine if binding is not denying]
        assert denying.get("matchResources", {}).get("namespaceSelector", warned) == warned
        for other in others:
            assert other["validationActions"] == ["Warn", "Audit"]
            assert other["matchResources"]["namespaceSelector"] == {"matchLabels": {names.UNINJECTED: "warn"}}


def list_ingress(name: str) -> dict[str, list]:
    """Return the allowed sources by the name of the port; [] for any."""
    labels = DEPLOYMENTS[name]["template"]["metadata"]["labels"]
    mine = [policy for policy in POLICIES.values() if matches_selector(policy["podSelector"], labels)]
    return {
        port["port"]: rule.get("from", [])
        for binding in mine
        for rule in binding.get("ingress", ())
        for port in rule["ports"]
    }


def test_t08_t09_network_policies_open_only_the_ports_of_railwright():
    assert POLICIES["railwright"]["podSelector"] == {}, "every pod of the namespace"
    assert POLICIES["railwright"]["policyTypes"] == ["Ingress", "Egress"]
    for name in DEPLOYMENTS:
        (container,) = pod_of(name)["containers"]
        served = {port["name"] for port in container.get("ports", ())}
        assert list_ingress(name).keys() >= served, f"{name} serves a port nobody can reach"
        assert list_ingress(name)["ops"], "metrics are for those who are named"
    leaving = {
        (name, port["port"])
        for name, policy in POLICIES.items()
        for rule in policy.get("egress", ())
        for port in rule["ports"]
    }
    assert leaving == {("railwright", port) for port in (443, 6443, 53)}


def test_t08_t09_patches_on_the_security_page_restrict_callers():
    page = (ROOT / "docs" / "security.md").read_text()
    blocks = [block.split("```")[0] for block in page.split("```yaml\n")[1:]]
    patches = [patche for block in blocks for patche in yaml.safe_load(block).get("patches", ())]
    assert {patche["target"]["name"] for patche in patches} == {"railwright", "railwright-extender"}
    for patch in patches:
        assert patch["target"]["kind"] == "NetworkPolicy"
        before = {"spec": POLICIES[patch["target"]["name"]]}
        after = jsonpatch.apply_patch(before, yaml.safe_load(patch["patch"]))
        assert after["spec"]["ingress"][0]["ports"] == before["spec"]["ingress"][0]["ports"]
        assert after["spec"]["ingress"][0]["from"]
