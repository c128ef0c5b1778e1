"""The Helm chart: the same objects as the kustomizations, and its life on the real API server.

No container runs on the plane: what the pods would do is done by the servers that the test starts as their accounts.
"""

import asyncio
import json
import os
import pathlib
import re
import sys

import pytest
import pytest_asyncio
import yaml
from plane import helm as helms
from plane import plane as planes
from plane import rotation, site, waiting

from fabric import names

ROOT = pathlib.Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
CHART, NAMESPACE = helms.CHART, names.NAMESPACE
KEPT = {"Event", "Node", "Namespace", "APIService"}  # come and go by themselves
POLICY = """
apiVersion: railwright.io/v1alpha1
kind: FabricPolicy
fabrics:
  ib:
    transport: infiniband
    rails: [{name: rail0, resource: nvidia.com/mlx5_0, device: mlx5_0}]
"""
MONITORED = "metrics.serviceMonitor=true,metrics.prometheusRule=true,metrics.dashboards=true"
MATRIX = {  # the kustomization: the chart's values for the same
    "base": ["--set=image.tag=latest"],
    "overlays/production": [f"--values={CHART / 'values-production.yaml'}"],
    "overlays/cert-manager": ["--set=image.tag=latest,certificates.mode=cert-manager"],
    "overlays/prometheus": [f"--set=image.tag=latest,{MONITORED}"],
    "components/client-auth": ["--set=image.tag=latest,certificates.clientAuth=true"],
}


def objects(text: str) -> dict[tuple, dict]:
    """Objects by what tells them apart, without tests; what a hook adds to an object is put into it."""
    found: dict[tuple, dict] = {}
    hooked = []
    for each in filter(None, yaml.safe_load_all(text)):
        hook = each["metadata"].get("annotations", {}).get("helm.sh/hook")
        metadata = each["metadata"]
        key = (each["apiVersion"], each["kind"], metadata.get("namespace"), metadata["name"])
        if hook is None:
            assert key not in found, f"{key} is there twice"
            found[key] = each
        elif hook == "pre-install":
            hooked.append((key, each))
    for key, each in hooked:
        found[key] |= {part: value for part, value in each.items() if part != "metadata"}
    return found


@pytest.fixture
def helm(tmp_path):
    return helms.Helm(tmp_path)


async def rendered(helm, *options):
    return objects(await helm("template", helms.RELEASE, str(CHART), *options))


@pytest.fixture(scope="session")
def kustomized(tmp_path_factory):
    """Renders a folder of manifests/; a component on top of the base."""

    async def render(folder):
        place = MANIFESTS / folder
        if folder.startswith("components/"):
            place = tmp_path_factory.mktemp("kustomization").resolve()
            lists = {"resources": MANIFESTS / "base", "components": MANIFESTS / folder}
            text = yaml.safe_dump({key: [os.path.relpath(each, place)] for key, each in lists.items()})
            (place / "kustomization.yaml").write_text(text)
        kubectl = planes.binaries.locate()["kubectl"]
        process = await asyncio.create_subprocess_exec(kubectl, "kustomize", place, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        assert process.returncode == 0
        return objects(out.decode())

    return render


@pytest.mark.plane
@pytest.mark.parametrize("folder", MATRIX)
async def test_chart_and_kustomization_make_the_same_objects(helm, kustomized, folder):
    ours, theirs = await rendered(helm, *MATRIX[folder]), await kustomized(folder)
    theirs.pop(("v1", "Namespace", None, NAMESPACE))  # Helm's own to make: --create-namespace
    assert ours.keys() == theirs.keys()
    for key, wanted in theirs.items():
        assert ours[key] == wanted, key


@pytest.mark.plane
async def test_a_value_reaches_what_it_is_for(helm):
    found = await rendered(
        helm,
        "--set=image.repository=r.example/railwright,image.pullPolicy=Always,image.pullSecrets[0].name=registry",
        f"--set=image.digest=sha256:{'a' * 64}",
        "--set=webhook.failurePolicy=Ignore,webhook.timeoutSeconds=9,webhook.excludedNamespaces={infra}",
        "--set=webhook.extraArgs={--max-body=1},webhook.nodeSelector.role=system",
        "--set=webhook.tolerations[0].operator=Exists,webhook.affinity.nodeAffinity.x=y",
        "--set=extender.plainHttp=true,tracing.endpoint=http://otel:4318,networkPolicy.metricsNamespace=prom",
        "--set=admissionPolicy.mode=Warn,admissionPolicy.accelerators={nvidia.com/gpu,amd.com/gpu},quota=false",
        "--set=certificates.mode=existing",
        "--set-string=certificates.caBundle=PEM",
        "--set-string=policy.document=" + "kind: FabricPolicy",
    )
    by_name = {(kind, name): each for (_, kind, _, name), each in found.items()}
    webhook = by_name["Deployment", "railwright-webhook"]["spec"]["template"]["spec"]
    assert webhook["containers"][0]["image"] == f"r.example/railwright@sha256:{'a' * 64}"
    assert webhook["containers"][0]["imagePullPolicy"] == "Always"
    assert webhook["containers"][0]["args"][-2:] == ["--otlp-endpoint=http://otel:4318", "--max-body=1"]
    assert webhook["imagePullSecrets"] == [{"name": "registry"}]
    assert webhook["nodeSelector"] == {"role": "system"}
    assert webhook["tolerations"] == [{"operator": "Exists"}]
    assert webhook["affinity"] == {"nodeAffinity": {"x": "y"}}
    extender = by_name["Deployment", "railwright-extender"]["spec"]["template"]["spec"]
    assert extender["containers"][0]["args"][1:3] == ["--plain-http", "--allow-plain-http"]
    assert "railwright-extender-tls" not in json.dumps(extender)
    hooks = by_name["MutatingWebhookConfiguration", "railwright"]["webhooks"]
    assert {each["clientConfig"]["caBundle"] for each in hooks} == {"UEVN"}
    assert {each["failurePolicy"] for each in hooks} == {"Ignore"}
    assert sorted(each["timeoutSeconds"] for each in hooks) == [2, 2, 2, 9, 9, 9]
    for each in (*hooks, by_name["ValidatingAdmissionPolicy", "railwright-injected"]["spec"]["matchConstraints"]):
        assert "infra" in json.dumps(each["namespaceSelector"])
    by_namespace = by_name["ValidatingAdmissionPolicy", "railwright-injected-by-namespace"]["spec"]
    assert "['nvidia.com/gpu', 'amd.com/gpu'].exists" in by_namespace["matchConditions"][1]["expression"]
    actions = {name: each["spec"]["validationActions"][0] for (kind, name), each in by_name.items() if "Binding" in kind and "spec" in each}  # fmt: skip
    assert [name for name, action in actions.items() if action == "Deny"] == ["railwright-written-keys"]
    assert by_name["ConfigMap", "railwright-policy"]["data"] == {"policy.yaml": "kind: FabricPolicy\n"}
    assert "prom" in json.dumps(by_name["NetworkPolicy", "railwright-metrics"])
    assert ("NetworkPolicy", "railwright-traces") in by_name
    absent = [("ResourceQuota", "railwright-critical-pods"), ("Deployment", "railwright-certs")]
    assert not [each for each in absent if each in by_name]
    assert not [each for each in by_name if each[0] in ("Secret", "Certificate")]


@pytest.mark.plane
async def test_what_is_switched_off_leaves_no_object(helm):
    off = "extender.enabled=false,admissionPolicy.mode=Off,networkPolicy.enabled=false,policy.create=false"
    left = {(kind, name) for _, kind, _, name in await rendered(helm, f"--set={off}")}
    kinds = {kind for kind, _ in left}
    assert not kinds & {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "NetworkPolicy", "ConfigMap"}
    assert {name for _, name in left if "extender" in name} == {"railwright-extender-tls"}


@pytest.mark.plane
@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--set=webhok.replicas=3"], "webhok"),
        (["--set=webhook.replicas=0"], "replicas"),
        (["--set=certificates.caBundle=PEM"], "certificates.mode=existing"),
        (["--set=webhook.minAvailable=2"], "give fewer than replicas"),
        (["--kube-version=1.29.0"], "1.30"),
        (["--namespace=elsewhere"], "has to be railwright-system"),
    ],
)
async def test_values_that_cannot_work_are_refused_with_what_to_do(tmp_path, options, says):
    helm = helms.Helm(tmp_path, namespace="" if "--namespace" in options[0] else NAMESPACE)
    with pytest.raises(helms.FailedError, match=re.escape(says)):
        await helm("template", helms.RELEASE, str(CHART), *options)


@pytest.mark.plane
async def test_helm_finds_nothing_to_say_about_the_chart(helm):
    assert "0 chart(s) failed" in await helm("lint", str(CHART), "--strict")


class Cluster:
    """What is in the API server, and Helm's hands on it."""

    def __init__(self, plane, folder):
        self.plane, self.api = plane, plane.api
        self.helm = helms.Helm(folder, plane.kubeconfig)
        self.kinds = ""

    async def listed(self):
        """Every object there is but for those that come and go, as kind, namespace and name."""
        if not self.kinds:
            names_ = (await self.plane.kubectl("api-resources", "--verbs=list", "-o", "name")).split()
            self.kinds = ",".join(each for each in names_ if each.split(".")[0] not in ("events", "componentstatuses"))
        columns = "custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name"
        lines = (await self.plane.kubectl("get", self.kinds, "-A", "--no-headers", "-o", columns)).splitlines()
        found = {tuple(line.split()) for line in lines}
        return {each for each in found if each and each[0] not in KEPT}

    async def clear(self):
        """Take away what other tests, which install by kustomize, have left of the installation."""
        text = await self.plane.kubectl("kustomize", str(site.BASE))
        left = yaml.safe_dump_all(each for each in yaml.safe_load_all(text) if each["kind"] != "Namespace")
        await self.plane.kubectl("delete", "-f", "-", "--ignore-not-found", "--wait=true", stdin=left, check=False)
        for kind in ("Pod", "Secret", "Lease", "EndpointSlice"):
            await self.api.delete_all(kind, NAMESPACE, grace=0)

    async def hooks(self):
        return (await self.api.get("MutatingWebhookConfiguration", "railwright"))["webhooks"]

    async def secrets(self):
        return {
            name: (await self.api.get("Secret", name, NAMESPACE)).get("data")
            for name in ("railwright-ca", "railwright-webhook-tls", "railwright-extender-tls")
        }

    async def policy(self):
        return (await self.api.get("ConfigMap", names.POLICY_CONFIGMAP, NAMESPACE))["data"][names.POLICY_KEY]


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(plane, site, tmp_path):
    """With the namespace, and nothing of ours in it."""
    made = Cluster(plane, tmp_path)
    await made.clear()
    yield made
    if helms.RELEASE in await made.helm("list", "-aq"):
        await made.helm("uninstall", helms.RELEASE)
    await made.clear()


@pytest_asyncio.fixture(loop_scope="session")
async def certified(cluster, plane, site):
    """Installed, and railwright-certs has issued the first certificates."""
    before = await cluster.listed()
    await cluster.helm.install()
    rotator = rotation.Rotation(plane, site)
    await rotator.start()
    await rotator.issued()
    await waiting.wait(lambda: filled(cluster), describe="caBundle to be written")
    yield before, rotator
    await asyncio.gather(*(each.stop() for each in rotator.replicas))


async def filled(cluster):
    return all(each["clientConfig"].get("caBundle") for each in await cluster.hooks())


async def test_an_upgrade_and_a_rollback_keep_what_others_wrote_and_uninstalling_leaves_nothing(
    plane, cluster, certified, serve
):
    before, rotator = certified
    assert "roce:" in await cluster.policy(), "the commented example, to begin with"
    await cluster.api.patch(
        "ConfigMap", names.POLICY_CONFIGMAP, {"data": {names.POLICY_KEY: POLICY}}, NAMESPACE
    )  # the operator's hand
    place = {"POD_NAME": "extender-0", "POD_IP": "10.96.0.77", "POD_NAMESPACE": NAMESPACE}
    account = site.Site(plane).kubeconfig("extender")
    extender = await serve("extender", "--plain-http", "--leader-elect", "--drain-seconds=0.2", account, **place)
    await extender.ready()
    await waiting.wait(lambda: published(cluster), describe="the leader behind its Service")

    async def kept():
        bundles = {each["clientConfig"].get("caBundle") for each in await cluster.hooks()}
        return bundles, await cluster.secrets(), await cluster.policy(), await published(cluster)

    held = await kept()
    assert len(held[0]) == 1
    assert all(held[1].values())
    await cluster.helm.upgrade("--set=webhook.timeoutSeconds=7,webhook.replicas=3")
    assert [each["timeoutSeconds"] for each in await cluster.hooks()][0] == 7
    assert await kept() == held
    await cluster.helm("rollback", helms.RELEASE, "1")
    assert [each["timeoutSeconds"] for each in await cluster.hooks()][0] == 5
    assert await kept() == held
    manifests = await cluster.helm("template", helms.RELEASE, str(CHART), "--no-hooks", "--set=webhook.replicas=4")
    await plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=manifests)
    assert await kept() == held, "nor does a server-side apply take it away"

    await asyncio.gather(*(each.stop() for each in rotator.replicas))
    rotator.replicas.clear()
    await cluster.helm("uninstall", helms.RELEASE)  # under a leader that still runs

    async def gone():
        left = await cluster.listed() - before
        assert not left, left
        return True

    await waiting.wait(gone, seconds=30, describe="nothing to be left")
    await extender.stop()
    assert not await cluster.listed() - before, "nor does a leader that ends bring anything back"


async def published(cluster):
    found = await cluster.api.list("EndpointSlice", NAMESPACE, labels="kubernetes.io/service-name=railwright-extender")
    return [each["endpoints"][0]["addresses"] for each in found if each.get("endpoints")]


async def test_what_force_replaces_the_rotator_puts_back(cluster, certified):
    """`--force` puts whole objects: certificates go, and come anew. The page says so, and not to."""
    held = await cluster.secrets()
    await cluster.helm.upgrade("--force")
    await waiting.wait(lambda: filled(cluster), seconds=30, describe="caBundle to be put back")
    assert all((await cluster.secrets()).values())
    assert (await cluster.secrets())["railwright-ca"] != held["railwright-ca"], "if it stays, the page is out of date"


async def test_a_configmap_that_was_there_first_is_not_taken_over(cluster):
    await site.Site(cluster.plane).policy(POLICY)
    with pytest.raises(helms.FailedError, match=names.POLICY_CONFIGMAP):
        await cluster.helm.install()
    assert await cluster.policy() == POLICY
    await cluster.helm("uninstall", helms.RELEASE)
    assert await cluster.policy() == POLICY
    await cluster.helm.install("--set=policy.create=false")
    await cluster.helm("uninstall", helms.RELEASE)
    assert await cluster.policy() == POLICY


async def test_helms_test_may_look_at_all_it_needs(plane, cluster):
    """What `helm test` would run, by hand: the check, with the token of the test's account."""
    await cluster.helm.install(f"--set-string=policy.document={POLICY}")
    text = await cluster.helm("template", helms.RELEASE, str(CHART), "--show-only=templates/tests/check.yaml")
    documents = list(yaml.safe_load_all(text))
    [pod] = [each for each in documents if each["kind"] == "Pod"]
    rights = yaml.safe_dump_all(each for each in documents if each["kind"] != "Pod")
    try:
        await plane.kubectl("apply", "-f", "-", stdin=rights)
        await plane.make_namespace("strict", {"pod-security.kubernetes.io/enforce": "restricted"})
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "railwright-check"}}
        await plane.api.create(account, namespace="strict")
        pod["metadata"].pop("namespace")
        await plane.api.create(pod, namespace="strict", dry_run=True)
        token = (await plane.kubectl("create", "token", "railwright-check", "-n", NAMESPACE)).strip()
        kubeconfig = yaml.safe_load(pathlib.Path(plane.kubeconfig).read_text())
        kubeconfig["users"][0]["user"] = {"token": token}
        path = pathlib.Path(plane.kubeconfig).with_name("railwright-check.yaml")
        path.write_text(yaml.safe_dump(kubeconfig))
        assert pod["spec"]["containers"][0]["args"][0] == "check"
        command = [sys.executable, "-m", "cli", "check", "-o", "json", f"--kubeconfig={path}"]
        process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        rows = {each["check"]: each for each in json.loads(out)["checks"]}
        assert process.returncode == 1, "no server runs here"
        assert rows["webhook-deployment"]["state"] == "ok"
        assert rows["policy-valid"]["state"] == "ok", rows
        hidden = {name: each["detail"] for name, each in rows.items() if "may not" in each["detail"]}
        assert hidden.keys() <= {"webhook-secret", "caller-permissions"}, hidden
    finally:
        await plane.kubectl("delete", "-f", "-", "--ignore-not-found", stdin=rights, check=False)
        await plane.remove_namespace("strict")
