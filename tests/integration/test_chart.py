"""The Helm chart: the same objects as the kustomizations; installation, upgrades and removal on the real API server.

No container runs on the plane: the test starts the pods' servers itself, under the pods' accounts.
"""

import asyncio
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import pytest_asyncio
import yaml
from plane import (
    audit_log,
    binaries,
    commands,
    guard,
    manifests,
    processes,
    releases,
    rotation,
    site,
    stand_ins,
    waiting,
)
from plane import helm as helm_program

from certs import inventory
from railwright.cli.__main__ import main
from railwright.fabric import names, version

ROOT = pathlib.Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
CHART, NAMESPACE = releases.CHART, names.NAMESPACE
PASSING = {"events", "componentstatuses", "nodes", "namespaces"}  # come and go by themselves, or with other tests
POLICY = manifests.policy({"ib": manifests.fabric()}) + "\n"
GUARD = "ValidatingAdmissionPolicy"
MONITORED = "metrics.enabled=true"
MATRIX = {  # the kustomization: the chart's values for the same
    "base": ["--set=image.tag=latest"],
    "overlays/production": [f"--values={CHART / 'values-production.yaml'}"],
    "overlays/cert-manager": ["--set=image.tag=latest,certificates.mode=cert-manager"],
    "overlays/prometheus": [f"--set=image.tag=latest,{MONITORED}"],
    "components/claims": ["--set=image.tag=latest,webhook.claims=true"],
}


def index_objects(text: str) -> dict[tuple, dict]:
    """Return the objects by their identity, without those of the chart's test."""
    by_key: dict[tuple, dict] = {}
    for document in filter(None, yaml.load_all(text, Loader=yaml.CSafeLoader)):  # libyaml: a rendering has 150 KB
        metadata = document["metadata"]
        if metadata.get("annotations", {}).get("helm.sh/hook") == "test":
            continue
        key = (document["apiVersion"], document["kind"], metadata.get("namespace"), metadata["name"])
        assert key not in by_key, f"{key} is there twice"
        by_key[key] = document
    return by_key


@pytest.fixture
def helm(tmp_path):
    return releases.Helm(tmp_path)


async def render_chart(helm, *options):
    return index_objects(await helm("template", releases.RELEASE, str(CHART), releases.WHOLE, *options))


async def render_by_name(helm, *options):
    return {(kind, name): tree for (_, kind, _, name), tree in (await render_chart(helm, *options)).items()}


@pytest.fixture
def build_kustomization(tmp_path):
    """Return a function (folder of manifests/ -> folder to render); components come on top of the base."""

    def build(folder):
        if not folder.startswith("components/"):
            return MANIFESTS / folder
        made = tmp_path.resolve()
        lists = {"resources": ["base"], "components": folder.split()}
        text = yaml.safe_dump(
            {key: [os.path.relpath(MANIFESTS / name, made) for name in names] for key, names in lists.items()}
        )
        (made / "kustomization.yaml").write_text(text)
        return made

    return build


async def kustomize(folder):
    code, out, err = await processes.run(binaries.locate()["kubectl"], "kustomize", folder)
    assert code == 0, err
    return index_objects(out)


@pytest.mark.parametrize("folder", MATRIX)
async def test_chart_and_kustomization_render_the_same_objects(helm, build_kustomization, folder):
    ours, theirs = await render_chart(helm, *MATRIX[folder]), await kustomize(build_kustomization(folder))
    theirs.pop(("v1", "Namespace", None, NAMESPACE))  # Helm's own to make: --create-namespace
    assert ours.keys() == theirs.keys()
    for key, expected in theirs.items():
        assert expected["metadata"]["labels"].pop("app.kubernetes.io/managed-by") == "kustomize"
        labels = ours[key]["metadata"]["labels"]
        assert labels.pop("app.kubernetes.io/managed-by") == "Helm"
        assert labels.pop("helm.sh/chart") == f"railwright-{version.VERSION}"
        assert ours[key] == expected, key


def test_the_rendered_manifests_are_up_to_date():
    """The chart is the source of manifests/base, the overlays and the components."""
    program = "import sys, build, render; print(build.list_outdated_files(render.render_files(sys.argv[1])))"
    command = [sys.executable, "-c", program, helm_program.locate()]
    ran = subprocess.run(command, cwd=MANIFESTS / "charting", capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n", "run: python manifests/charting/render.py"


async def test_chart_values_set_the_fields_of_images_webhooks_and_admission_policies(helm):
    by_name = await render_by_name(
        helm,
        "--set=image.repository=r.example/railwright,image.pullSecrets[0].name=registry",
        f"--set=image.tag=@sha256:{'a' * 64}",
        "--set=webhook.failurePolicy=Ignore,webhook.excludedNamespaces={infra}",
        "--set=webhook.extraArgs={--drain-seconds=1},webhook.hostNetwork=true,webhook.opsPort=18080",
        "--set=extender.plainHttp=true,networkPolicy.metricsNamespace=prom",
        "--set=admissionPolicy.mode=Warn,admissionPolicy.accelerators={nvidia.com/gpu,amd.com/gpu},quota=false",
        "--set=certificates.mode=existing",
        "--set-string=certificates.caBundle=PEM",
        "--set-string=policy.document=" + "defaultFabric: roce",
    )
    webhook = by_name["Deployment", "railwright-webhook"]["spec"]["template"]["spec"]
    assert (webhook["hostNetwork"], webhook["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    assert "--ops-listen=:18080" in webhook["containers"][0]["args"]
    assert {"name": "ops", "containerPort": 18080} in webhook["containers"][0]["ports"]
    assert webhook["containers"][0]["image"] == f"r.example/railwright@sha256:{'a' * 64}"
    assert webhook["containers"][0]["args"][-1] == "--drain-seconds=1"
    assert webhook["imagePullSecrets"] == [{"name": "registry"}]
    extender = by_name["Deployment", "railwright-extender"]["spec"]["template"]["spec"]
    assert extender["containers"][0]["args"][1:3] == ["--plain-http", "--allow-plain-http"]
    assert "railwright-extender-tls" not in json.dumps(extender)
    hooks = by_name["MutatingWebhookConfiguration", "railwright"]["webhooks"]
    assert {hook["clientConfig"]["caBundle"] for hook in hooks} == {"UEVN"}
    assert {hook["failurePolicy"] for hook in hooks} == {"Ignore"}
    assert sorted(hook["timeoutSeconds"] for hook in hooks) == [2, 5, 5, 5]
    guards = [manifest["spec"]["matchConstraints"] for (kind, _), manifest in by_name.items() if kind == GUARD]
    assert len(guards) == 2
    for webhook_or_guard in (*hooks, *guards):
        assert "infra" in json.dumps(webhook_or_guard["namespaceSelector"])
    by_namespace = by_name["ValidatingAdmissionPolicy", "railwright-injected-by-namespace"]["spec"]
    assert "['nvidia.com/gpu', 'amd.com/gpu'].exists" in by_namespace["matchConditions"][1]["expression"]
    bindings = {name: manifest["spec"] for (kind, name), manifest in by_name.items() if kind.endswith("PolicyBinding")}
    denying = [name for name, spec in bindings.items() if "Deny" in spec["validationActions"]]
    assert not denying
    assert by_name["ConfigMap", "railwright-policy"]["data"] == {"policy.yaml": "defaultFabric: roce\n"}
    assert "prom" in json.dumps(by_name["NetworkPolicy", "railwright"])
    absent = [("ResourceQuota", "railwright-critical-pods"), ("Deployment", "railwright-certs")]
    assert not [key for key in absent if key in by_name]
    assert not [key for key in by_name if key[0] in ("Secret", "Certificate")]


async def test_the_webhook_gets_rights_for_claims_only_if_a_fabric_has_claims_or_nvlink_segments(helm, tmp_path):
    """By its value, or by the policy in the values, which may be invalid."""
    policy = tmp_path / "policy.yaml"
    for fabric, granted in (
        ("{claims: {deviceClass: dranet}}", True),
        ("{nvlinkSegment: 1}", True),
        ("{transport: roce}", False),
        ("1", False),
        ("[", False),
    ):
        policy.write_text(f"fabrics: {{ib: {fabric}}}")
        roles = await render_by_name(helm, f"--set-file=policy.document={policy}")
        assert (("ClusterRole", "railwright-webhook-claims") in roles) is granted, fabric
        assert (("ClusterRoleBinding", "railwright-webhook-claims") in roles) is granted, fabric


async def test_pod_settings_of_the_chart_reach_every_component(helm):
    pods = {
        "priorityClassName": "low",
        "nodeSelector": {"role": "system"},
        "tolerations": [{"operator": "Exists"}],
        "annotations": {"note": "a"},
        "securityContext": {"runAsUser": 1000},
    }
    resources = {"limits": {"memory": "3Gi"}}
    values = {"pods": pods, "commonLabels": {"cost": "hpc"}, "certificates": {"extraArgs": ["--x=1"]}}
    values |= {key: {"resources": resources, "extraArgs": ["--x=1"]} for key in ("webhook", "extender")}
    by_name = await render_by_name(helm, *(f"--set-json={key}={json.dumps(value)}" for key, value in values.items()))
    assert all(manifest["metadata"]["labels"]["cost"] == "hpc" for manifest in by_name.values())
    for name in ("webhook", "extender", "certs"):
        deployment = by_name["Deployment", f"railwright-{name}"]["spec"]
        metadata, pod = deployment["template"]["metadata"], deployment["template"]["spec"]
        assert metadata["annotations"] == {"note": "a"}
        assert metadata["labels"].items() >= {"cost": "hpc", **deployment["selector"]["matchLabels"]}.items()
        assert pod["securityContext"].items() >= {"runAsUser": 1000, "runAsNonRoot": True}.items()
        for key in ("priorityClassName", "nodeSelector", "tolerations"):
            assert pod[key] == pods[key]
        (container,) = pod["containers"]
        assert container["resources"]["limits"]["memory"] == ("256Mi" if name == "certs" else "3Gi")
        assert container["args"][-1] == "--x=1"


async def test_chart_values_set_ports_monitors_and_the_hosts_of_certificates(helm):
    by_name = await render_by_name(
        helm,
        f"--set={MONITORED},clusterDomain=hpc.example,webhook.securePort=10250,extender.dashboard.enabled=true",
        "--set=metrics.labels.release=kps",
    )
    webhook = by_name["Deployment", "railwright-webhook"]["spec"]["template"]["spec"]["containers"][0]
    assert "--listen=:10250" in webhook["args"]
    assert {"name": "webhook", "containerPort": 10250} in webhook["ports"]
    extender = by_name["Deployment", "railwright-extender"]["spec"]["template"]["spec"]["containers"][0]
    assert "--dashboard-listen=:8714" in extender["args"]
    service = by_name["Service", "railwright-extender"]
    assert service["spec"]["ports"][1] == {"name": "dashboard", "port": 8714, "targetPort": "dashboard"}
    assert service["spec"]["sessionAffinity"] == "ClientIP"
    labels = by_name["Deployment", "railwright-extender"]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    ingress = by_name["NetworkPolicy", "railwright-extender"]["spec"]["ingress"]
    assert {"ports": [{"protocol": "TCP", "port": "dashboard"}]} in ingress
    rotator = by_name["Deployment", "railwright-certs"]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert f"--host=railwright-webhook.{NAMESPACE}.svc.hpc.example" in rotator
    monitor = by_name["ServiceMonitor", "railwright"]
    assert monitor["metadata"]["labels"]["release"] == "kps"
    assert monitor["spec"]["namespaceSelector"] == {"matchNames": [NAMESPACE]}
    rule = by_name["PrometheusRule", "railwright"]
    assert rule["metadata"]["labels"]["release"] == "kps"
    assert by_name["ConfigMap", "railwright-dashboards"]["metadata"]["labels"]["grafana_dashboard"] == "1"


async def test_a_single_replica_blocks_neither_a_rollout_nor_a_drain(helm):
    trees = await render_chart(helm, "--set=webhook.replicas=1,extender.replicas=1")
    for (_, kind, _, name), manifest in trees.items():
        if kind == "PodDisruptionBudget":
            assert manifest["spec"]["maxUnavailable"] == 1, name
        if kind == "Deployment":
            hosts, _ = manifest["spec"]["template"]["spec"]["topologySpreadConstraints"]
            assert hosts["matchLabelKeys"] == ["pod-template-hash"], "the old pod does not count"


async def test_names_and_namespace_follow_the_release_and_its_overrides(tmp_path):
    helm = releases.Helm(tmp_path, namespace="fabrics")
    options = (f"--set={MONITORED},extender.clientAuth=true",)
    for override, prefix in (((), "hpc-railwright"), (("--set=fullnameOverride=network",), "network")):
        text = await helm(
            "template", "hpc", str(CHART), releases.WHOLE, *options, *override, "--set-string=policy.document=a"
        )
        rendered = index_objects(text)
        assert all(name.startswith(prefix) for _, _, _, name in rendered), rendered.keys()
        assert {namespace for _, _, namespace, _ in rendered} == {None, "fabrics"}
        fixed = re.compile(r"(?<!hpc-)railwright-(system|webhook|extender|certs|policy)")
        for key, manifest in rendered.items():  # the runbook's text has the default names
            assert key[1] == "PrometheusRule" or not fixed.findall(json.dumps(manifest)), key
        labels = rendered["apps/v1", "Deployment", "fabrics", f"{prefix}-webhook"]["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == "hpc"


async def test_the_default_values_install_admission_only(helm):
    admission = index_objects(await helm("template", releases.RELEASE, str(CHART)))
    left = {(kind, name) for _, kind, _, name in admission}
    assert len(left) <= 22, sorted(left)
    assert ("ClusterRole", "railwright-cluster-view") in left, "`gangs` and `fabric` need no extender"
    assert f"admission only: {len(left)} objects." in (ROOT / "README.md").read_text()
    assert not {kind for kind, _ in left} & {GUARD, f"{GUARD}Binding"}
    assert [name for kind, name in left if kind == "ConfigMap"] == ["railwright-last-policy"]
    assert {name for _, name in left if "extender" in name or "dashboard" in name} == set()
    entries = [hook["name"] for tree in admission.values() for hook in tree.get("webhooks", ())]
    assert len(entries) <= 5, entries


async def test_the_quota_for_critical_pods_is_created_on_gke_or_by_a_value(helm):
    for options, expected in (
        ((), False),
        (("--set=quota=true",), True),
        (("--api-versions=networking.gke.io/v1",), True),
    ):
        left = index_objects(await helm("template", releases.RELEASE, str(CHART), *options))
        assert any(kind == "ResourceQuota" for _, kind, _, _ in left) is expected, options


async def test_network_policies_are_left_out_if_a_chart_value_says_so(helm):
    left = await render_chart(helm, "--set=networkPolicy.enabled=false")
    assert not [key for key in left if key[1] == "NetworkPolicy"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--set=webhok.replicas=3"], "webhok"),
        (["--set=certificates.caBundle=PEM"], "certificates.mode=existing"),
        (["--kube-version=1.29.0"], "1.30"),
        (["--set=fullnameOverride=Rail_Wright"], "fullnameOverride"),
        (["--set=webhook.securePort=8080"], "webhook.securePort and webhook.opsPort are both 8080"),
        (["--set=extender.clientAuth=true,extender.plainHttp=true"], "a certificate needs TLS"),
        (["--set=webhook.hostNetwork=true,webhook.securePort=10250"], "10250, which kubelet uses on every node"),
        ([r"--set=commonLabels.app\.kubernetes\.io/component=x"], "commonLabels sets app.kubernetes.io/component"),
    ],
)
async def test_invalid_chart_values_are_refused_with_a_fix(tmp_path, options, says):
    helm = releases.Helm(tmp_path)
    with pytest.raises(releases.FailedError, match=re.escape(says)):
        await helm("template", releases.RELEASE, str(CHART), releases.WHOLE, *options)


async def test_helm_lint_reports_nothing(helm):
    assert "0 chart(s) failed" in await helm("lint", str(CHART), "--strict")


class Cluster:
    """Reads the objects in the API server, and changes them by Helm."""

    def __init__(self, plane, folder):
        self.plane, self.api = plane, plane.api
        self.helm = releases.Helm(folder, plane.kubeconfig)
        self.kinds = ""
        self.before = set()

    async def listed(self):
        """Return kind, namespace and name of every object, except short-lived ones."""
        if not self.kinds:
            listed = (await self.plane.kubectl("api-resources", "--verbs=list", "-o", "name")).split()
            self.kinds = ",".join(kind for kind in listed if kind.split(".")[0] not in PASSING)
        columns = "custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name"
        lines = (await self.plane.kubectl("get", self.kinds, "-A", "--no-headers", "-o", columns)).splitlines()
        return {tuple(line.split()) for line in lines if line}

    async def gone(self):
        """Wait until only the policy is left, which is not part of the release."""

        async def equal():
            left = await self.listed() - self.before
            assert left == {("ConfigMap", NAMESPACE, names.POLICY_CONFIGMAP)}, left
            return True

        await waiting.wait(equal, seconds=30, describe="nothing to be left")

    async def hooks(self):
        return (await self.api.get("MutatingWebhookConfiguration", "railwright"))["webhooks"]

    async def bundles(self):
        return {hook["clientConfig"].get("caBundle") for hook in await self.hooks()}

    async def secrets(self):
        return {
            name: (await self.api.get("Secret", name, NAMESPACE)).get("data") for name in inventory.SECRETS.values()
        }

    async def policy(self):
        return (await self.api.get("ConfigMap", names.POLICY_CONFIGMAP, NAMESPACE))["data"][names.POLICY_KEY]

    async def state(self):
        """Return the fields that Helm does not write."""
        return await self.bundles(), await self.secrets(), await self.policy()

    async def wait_certified(self):
        """Wait for certificates and caBundle."""

        async def is_certified():
            return None not in await self.bundles() and all((await self.secrets()).values())

        await waiting.wait(is_certified, seconds=30, describe="certificates and caBundle to be written")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def cluster(plane, tmp_path_factory):
    """Yield a cluster with the namespace and no object of railwright."""
    made = Cluster(plane, tmp_path_factory.mktemp("helm"))
    await site.Site(plane).prepare()  # the namespace
    await releases.clear(plane.api)
    made.before = await made.listed()
    yield made
    for release in (await made.helm("list", "-aq")).split():
        await made.helm("uninstall", release)
    await releases.clear(plane.api)


@dataclasses.dataclass
class Installed:
    """Helm's notes after the installation, and the running servers."""

    notes: str
    rotator: rotation.Rotation
    servers: stand_ins.StandIns

    async def stop(self):
        """End the servers, and then the rotator."""
        await self.servers.stop()
        await asyncio.gather(*(replica.stop() for replica in self.rotator.replicas))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def installed(cluster, plane, tmp_path_factory):
    """Yield an installation with a running rotator and extender, and a policy that was applied separately."""
    notes = await cluster.helm.install()
    account = site.Site(plane)
    assert await cluster.api.get_or_none("ConfigMap", names.POLICY_CONFIGMAP, NAMESPACE) is None
    await account.policy(POLICY)
    rotator = rotation.Rotation(plane, account)
    await rotator.start()
    await cluster.wait_certified()
    servers = stand_ins.StandIns(plane, tmp_path_factory.mktemp("servers"))
    await (await servers.serve_extender()).ready()
    made = Installed(notes, rotator, servers)
    yield made
    await made.stop()


def add_token(kubeconfig, token):
    """Return the same cluster, accessed with this token."""
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    path = kubeconfig.with_name("with-token.yaml")
    path.write_text(yaml.safe_dump(document))
    return path


async def test_the_notes_of_helm_warn_of_a_missing_policy_and_of_a_single_replica(cluster, installed):
    assert "Until there is a policy" in installed.notes
    assert "create configmap railwright-policy --from-file=policy.yaml" in installed.notes
    assert "WARNING" not in installed.notes
    later = await cluster.helm.upgrade("--dry-run=server", "--set=webhook.replicas=1")
    assert "Until there is a policy" not in later
    assert "WARNING: webhook.replicas is 1" in later
    assert "opted-in pods and workloads are\nrejected. Set" in later


async def test_an_upgrade_and_a_rollback_keep_fields_of_other_writers(plane, cluster, installed):
    held = await cluster.state()
    assert len(held[0]) == 1
    assert held[2] == POLICY
    await cluster.helm.upgrade("--set=webhook.failurePolicy=Ignore,webhook.replicas=3,extender.clientAuth=true")
    assert (await cluster.hooks())[0]["failurePolicy"] == "Ignore"
    assert await cluster.state() == held
    await cluster.helm("rollback", releases.RELEASE, "1")
    assert (await cluster.hooks())[0]["failurePolicy"] == "Fail"
    assert await cluster.state() == held
    rendering = await cluster.helm(
        "template", releases.RELEASE, str(CHART), releases.WHOLE, "--no-hooks", "--set=webhook.replicas=4"
    )
    await plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=rendering)
    assert await cluster.state() == held, "nor does a server-side apply take it away"


async def test_labelled_pods_are_admitted_without_injection_between_disable_and_enable(
    plane, cluster, installed, namespace
):
    """No webhook answers on the plane, so labelled pods are rejected, which is when the switch is used."""
    kind = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicyBinding"
    pod = guard.probe({guard.FABRIC: "ib"})

    async def read_objects():
        return await cluster.hooks(), {item["metadata"]["name"]: item["spec"] for item in await cluster.api.list(kind)}

    async def run(*words):
        code, out, err = await commands.railwright(*words, kubeconfig=plane.kubeconfig)
        assert code == 0, out + err
        return out

    async def try_pod(text):
        message = await plane.api.find_rejection(pod, namespace)
        assert (text in message) if text else not message, message
        return True

    async def expect(text):
        await waiting.wait(lambda: try_pod(text), seconds=60, describe=f"a labelled pod: {text or 'is created'}")

    held = await read_objects()
    assert len(held[1]) >= 3
    await expect("failed calling webhook")
    assert "would have deleted MutatingWebhookConfiguration railwright\n" in await run("disable", "--dry-run")
    assert await read_objects() == held
    assert "deleted MutatingWebhookConfiguration railwright\n" in await run("disable")
    await expect("")
    assert "created MutatingWebhookConfiguration railwright\n" in await run("enable")
    await expect("failed calling webhook")
    assert await read_objects() == held
    await plane.api.delete("MutatingWebhookConfiguration", "railwright")
    await expect("railwright has not injected")  # what deleting only the webhooks does
    await run("disable")
    await expect("")
    await cluster.helm.upgrade()
    await cluster.wait_certified()
    await expect("failed calling webhook")
    assert await read_objects() == held
    assert " exists already, so it was not changed" in await run("enable")
    assert await plane.api.get_or_none("ConfigMap", "railwright-disabled", NAMESPACE) is None


async def test_the_account_of_helm_test_has_the_rights_that_check_needs(plane, cluster, installed, namespace):
    """Run the check with the token of the test's account, as `helm test` would."""
    text = await cluster.helm(
        "template", releases.RELEASE, str(CHART), releases.WHOLE, "--show-only=templates/tests/check.yaml"
    )
    documents = list(yaml.safe_load_all(text))
    [pod] = [document for document in documents if document["kind"] == "Pod"]
    assert pod["spec"]["containers"][0]["args"][0] == "check"
    rights = yaml.safe_dump_all(document for document in documents if document["kind"] != "Pod")
    level = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    try:
        await plane.kubectl("apply", "-f", "-", stdin=rights)
        await plane.api.patch("Namespace", namespace, level)
        await plane.api.create(manifests.build("ServiceAccount", "railwright-check"), namespace=namespace)
        pod["metadata"].pop("namespace")
        await plane.api.create(pod, namespace=namespace, dry_run=True)
        token = (await plane.kubectl("create", "token", "railwright-check", "-n", NAMESPACE)).strip()
        code, rows = await commands.check(plane, f"--kubeconfig={add_token(plane.kubeconfig, token)}")
    finally:
        await plane.kubectl("delete", "-f", "-", "--ignore-not-found", stdin=rights)
    assert code == 1, "no webhook runs here"
    for row in ("installed", "policy"):
        assert rows[row]["state"] == "ok", rows[row]
    hidden = {name: row["detail"] for name, row in rows.items() if "you may not" in row["detail"]}
    left_out = (
        "secrets/",
        "create pods",
        "configmaps/volcano-scheduler-configmap",
    )
    assert not {name: text for name, text in hidden.items() if not any(word in text for word in left_out)}


async def test_uninstalling_while_the_servers_run_leaves_only_the_policy(cluster, installed):
    began = audit_log.format_now()
    try:
        await cluster.helm("uninstall", releases.RELEASE)
        await cluster.gone()
    finally:
        await installed.stop()
        cluster.plane.without_roles.append((began, audit_log.format_now()))
    await cluster.gone()  # servers that end bring nothing back


async def test_helm_does_not_take_over_an_existing_policy(cluster, tmp_path):
    document = tmp_path / "policy.yaml"
    document.write_text(POLICY.replace('"ib"', '"other"'))
    await site.Site(cluster.plane).policy(POLICY)
    try:
        with pytest.raises(releases.FailedError, match=r"leave policy\.document empty to keep the ConfigMap"):
            await cluster.helm.install(f"--set-file=policy.document={document}")
        assert "Until there is a policy" not in await cluster.helm.install()
        assert await cluster.policy() == POLICY
        with pytest.raises(releases.FailedError, match=r"leave policy\.document empty to keep the ConfigMap"):
            await cluster.helm.upgrade(f"--set-file=policy.document={document}")
        await cluster.helm("uninstall", releases.RELEASE)
        assert await cluster.policy() == POLICY
    finally:
        await cluster.api.delete("ConfigMap", names.POLICY_CONFIGMAP, NAMESPACE)


async def test_an_upgrade_restores_the_policy_from_the_values(cluster, tmp_path):
    document = tmp_path / "policy.yaml"
    document.write_text(POLICY)
    given, edited = f"--set-file=policy.document={document}", {"data": {names.POLICY_KEY: "edited"}}
    await cluster.helm.install(given)
    try:
        await cluster.api.patch("ConfigMap", names.POLICY_CONFIGMAP, edited, NAMESPACE)
        await cluster.helm.upgrade(given)
        assert await cluster.policy() == POLICY, "the values are the source while they hold a policy"
        await cluster.helm.upgrade("--reset-values")
        assert await cluster.policy() == POLICY, "a value that is taken away deletes no policy"
        await cluster.helm("uninstall", releases.RELEASE)
        assert await cluster.policy() == POLICY
    finally:
        await cluster.api.delete("ConfigMap", names.POLICY_CONFIGMAP, NAMESPACE)


async def test_the_extender_is_added_and_removed_after_certificates_were_rotated_by_hand(cluster, plane):
    rotator = rotation.Rotation(plane, site.Site(plane))
    whole, cluster.helm.options = cluster.helm.options, ()
    try:
        await cluster.helm.install()
        await rotator.start()
        await rotator.wait_issued()
        by_hand = ("certs", "rotate", f"--kubeconfig={plane.kubeconfig}")
        assert await asyncio.to_thread(main, by_hand) == 0
        await cluster.helm.upgrade("--set=extender.enabled=true")
        await cluster.wait_certified()
        await rotator.recreate_secret("railwright-extender-tls")
        await cluster.helm.upgrade("--set=extender.enabled=false")
        await rotator.recreate_secret("railwright-webhook-tls")
        assert await cluster.api.get_or_none("Secret", "railwright-extender-tls", NAMESPACE) is None
    finally:
        cluster.helm.options = whole
        await asyncio.gather(*(replica.stop() for replica in rotator.replicas))
        await releases.clear(plane.api)


NO_POLICY = (
    "no valid policy yet: not found; create ConfigMap railwright-policy in namespace railwright-system with the key"
    " policy.yaml"
)
APPLY = {  # as GitOps tools do; no conflict is forced
    "server-side": ("--server-side", "--field-manager=argocd-controller"),
    "client-side": (),
}


async def test_a_second_apply_keeps_fields_of_other_writers(plane, cluster, tmp_path):
    """As with Argo CD: `helm template` and an apply, without a release. The rotator and an extender run."""
    rendering = await cluster.helm("template", releases.RELEASE, str(CHART), releases.WHOLE)
    account = site.Site(plane)
    rotator, servers = rotation.Rotation(plane, account), stand_ins.StandIns(plane, tmp_path)
    try:
        await plane.kubectl("apply", *APPLY["server-side"], "-f", "-", stdin=rendering)
        await rotator.start()
        await cluster.wait_certified()
        extender = await servers.serve_extender()

        async def waits_for_a_policy():
            async with plane.session.get(f"{extender.ops_url}/readyz") as answer:
                assert NO_POLICY in await answer.text()
                return True

        await waiting.wait(waits_for_a_policy, describe="the extender to say that there is no policy")
        await account.policy(POLICY)
        await extender.ready()
        for way, options in APPLY.items():
            if way == "client-side":  # the first one leaves its annotation on every object
                await plane.kubectl("apply", *options, "-f", "-", stdin=rendering)
            changed = POLICY.replace('"ib"', f'"{way}"')
            patch = {"data": {names.POLICY_KEY: changed}}
            await cluster.api.patch("ConfigMap", names.POLICY_CONFIGMAP, patch, NAMESPACE)
            held, versions = await cluster.state(), await releases.read_versions(plane, rendering)
            assert held[2] == changed
            await plane.kubectl("apply", *options, "-f", "-", stdin=rendering)
            assert await releases.read_versions(plane, rendering) == versions, (
                f"{way}: the second apply changes nothing"
            )
            assert await cluster.state() == held, way

            assert await plane.kubectl("diff", *options, "-f", "-", stdin=rendering) == "", way
    finally:
        await Installed("", rotator, servers).stop()
        await plane.kubectl("delete", "-f", "-", "--ignore-not-found", "--wait=false", stdin=rendering)
        await releases.clear(plane.api)


async def test_each_apply_updates_the_policy_from_the_values(plane, cluster, tmp_path):
    """With GitOps tools no hook runs, and `helm template` cannot look into the cluster."""
    document = tmp_path / "policy.yaml"
    options = (f"--set-file=policy.document={document}", "--show-only=templates/policy.yaml")
    try:
        for text in (POLICY, POLICY, POLICY.replace('"ib"', '"changed"')):
            document.write_text(text)
            rendering = await cluster.helm("template", releases.RELEASE, str(CHART), releases.WHOLE, *options)
            await plane.kubectl("apply", "-f", "-", stdin=rendering)
            assert await cluster.policy() == text
        labels = (await cluster.api.get("ConfigMap", names.POLICY_CONFIGMAP, NAMESPACE))["metadata"]["annotations"]
        assert labels["helm.sh/resource-policy"] == "keep"
        assert labels["argocd.argoproj.io/sync-options"] == "Prune=false,Delete=false"
    finally:
        await cluster.api.delete("ConfigMap", names.POLICY_CONFIGMAP, NAMESPACE)
