"""The policy as a FabricPolicy on the real API server: its definition, its validation, both servers, its status."""

import json
import re

import admitting
import pytest
import pytest_asyncio
import yaml
from plane import api, conditions, manifests, registration, waiting
from plane import site as sites
from plane.site import BASE

DEFINITION = yaml.safe_load((BASE / "crds.yaml").read_text())
VALIDATION = "ValidatingWebhookConfiguration"
KIND = "railwright.io/v1alpha1/FabricPolicy"
CRD = "apiextensions.k8s.io/v1/CustomResourceDefinition"
INJECTION, FABRIC = "railwright.io/injection", "railwright.io/fabric"
POD = manifests.pod("p", "ib", schedulerName="nobody")


def spec(marker: str, **more: object) -> dict:
    rail = {"name": "rail0", "resource": "x.y/hca", "device": f"mlx5_{marker}"}
    return {"fabrics": {"ib": manifests.fabric([rail], env={"MARKER": marker}, **more)}}


def document(marker: str) -> str:
    return manifests.policy(spec(marker)["fabrics"])


def resource(content: dict, name: str = "railwright-policy") -> dict:
    return manifests.build("FabricPolicy", name, {"namespace": sites.NAMESPACE}, spec=content)


async def install_definition(plane) -> None:
    await plane.api.create(DEFINITION)
    await conditions.established(plane.api, DEFINITION["metadata"]["name"])
    there = await plane.api.get(CRD, DEFINITION["metadata"]["name"])
    assert not conditions.includes(there, {"status": {"conditions": [{"type": "NonStructuralSchema"}]}}), there[
        "status"
    ]


async def remove_definition(plane) -> None:
    await plane.api.delete(CRD, DEFINITION["metadata"]["name"])
    await conditions.gone(plane.api, CRD, DEFINITION["metadata"]["name"])


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def clean_plane(plane):
    """Begin and end without the definition: Helm leaves it behind where an earlier test has uninstalled the chart."""
    await sites.Site(plane).prepare()  # the namespace
    await remove_definition(plane)
    yield
    await remove_definition(plane)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def definition(plane, clean_plane):
    """Install the definition for the tests until one that removes it."""
    await install_definition(plane)


@pytest_asyncio.fixture(loop_scope="session")
async def without_definition(plane, clean_plane):
    await remove_definition(plane)
    yield
    await remove_definition(plane)


@pytest_asyncio.fixture(loop_scope="session")
async def validated(plane, site, definition):
    """`await validated()`: from then on the API server calls the running webhook for every FabricPolicy."""

    async def register() -> None:
        authority = plane.certificates.authority.certificate_pem
        configuration = registration.shipped(site.webhook.port, authority, VALIDATION)
        for hook in configuration["webhooks"]:
            hook["timeoutSeconds"] = 30  # it fails open, and a busy machine takes its time
        await plane.api.create(configuration)

    yield register
    await plane.api.delete(VALIDATION, "railwright")


async def admit(plane, namespace: str) -> tuple[str, str]:
    """Return the digest of the policy that a pod names, and the marker that it has from it."""
    created = await plane.api.create(POD, namespace=namespace, dry_run=True)
    env = {entry["name"]: entry.get("value") for entry in created["spec"]["containers"][0].get("env", [])}
    return json.loads(created["metadata"]["annotations"][INJECTION])["policy"], env["MARKER"]


async def in_force(plane, namespace: str, marker: str) -> str:
    """Return the digest, once pods get this marker."""

    async def read_digest() -> str:
        digest, given = await admit(plane, namespace)
        assert given == marker
        return digest

    # an absent definition is looked for every 30 to 45 s
    return await waiting.wait(read_digest, seconds=60, describe=f"the policy with {marker} to be in force")


async def wait_for_status(plane, status: str) -> dict:
    """Return the resource, once its condition Accepted has this status for its generation."""

    async def read_resource() -> dict:
        there = await plane.api.get(KIND, "railwright-policy", sites.NAMESPACE)
        assert there.get("status", {}).get("observedGeneration") == there["metadata"]["generation"]
        (condition,) = there["status"]["conditions"]
        assert (condition["type"], condition["status"]) == ("Accepted", status)
        return there

    return await waiting.wait(read_resource, describe=f"Accepted={status}")


async def print_columns(plane, *arguments: str) -> list[list[str]]:
    """Return the lines of `kubectl get fabricpolicies`, each as its cells."""
    text = await plane.kubectl("-n", sites.NAMESPACE, "get", "fabricpolicies", *arguments)
    head, *lines = text.splitlines()
    starts = [match.start() for match in re.finditer(r"\S+", head)]
    ends = [*starts[1:], None]
    return [[line[start:end].strip() for start, end in zip(starts, ends, strict=True)] for line in (head, *lines)]


async def test_the_api_server_checks_values_by_the_definition(plane, definition):
    example = yaml.safe_load(yaml.safe_load((BASE / "policy.yaml").read_text())["data"]["policy.yaml"])
    whole = {key: value for key, value in example.items() if key not in ("apiVersion", "kind")}
    created = await plane.api.create(resource({**whole, "colour": "red"}), dry_run=True)
    assert created["spec"] == {**whole, "colour": "red"}, "nothing is pruned and no default is added"
    nulls = await plane.api.create(
        resource(spec("1", nccl=None, placement={"rails": None, "scale": None})), dry_run=True
    )
    assert nulls["spec"]["fabrics"]["ib"]["placement"] == {"rails": None, "scale": None}
    for content, path in (
        ({}, "spec.fabrics"),
        (spec("1", gpusPerNode=0), "spec.fabrics.ib.gpusPerNode"),
        (spec("1", gpusPerNode="x"), "spec.fabrics.ib.gpusPerNode"),
        (spec("1", placement={"scale": 0}), "spec.fabrics.ib.placement.scale"),
        (spec("1", placement={"rails": "sometimes"}), "spec.fabrics.ib.placement.rails"),
        (spec("_" * 80), "spec.fabrics.ib.rails[0].device"),
    ):
        with pytest.raises(api.ApiError) as refused:
            await plane.api.create(resource(content), dry_run=True)
        assert refused.value.status == 422
        assert path in refused.value.message


async def test_a_resource_of_another_name_is_not_in_force(plane, definition):
    await plane.api.create(resource(spec("1"), "another"))
    there = await plane.api.get(KIND, "another", sites.NAMESPACE)
    (condition,) = there["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Accepted", "Unknown", "NotInForce")
    assert (
        "only the FabricPolicy railwright-system/railwright-policy is, or without it the Conf" in condition["message"]
    )
    assert ["another", "Unknown"] in [[line[0], line[2]] for line in await print_columns(plane)]
    await plane.api.delete(KIND, "another", sites.NAMESPACE)


async def test_every_example_of_a_policy_fits_the_definition(plane, definition):
    for path in sorted([*admitting.EXAMPLES.glob("**/*.yaml"), *admitting.PROFILES.glob("*/policy.yaml")]):
        for tree in yaml.safe_load_all(path.read_text()):
            if isinstance(tree, dict) and tree.get("kind") == "FabricPolicy":
                content = {key: value for key, value in tree.items() if key not in ("apiVersion", "kind")}
                stored = await plane.api.create(resource(content), dry_run=True)
                assert stored["spec"] == content, path


async def test_both_servers_follow_the_resource_and_then_the_config_map(plane, namespace, site, validated):
    await site.start(document("1"), namespace)
    await validated()
    by_config_map = await in_force(plane, namespace, "1")

    await plane.api.create(resource({"defaultFabric": "ib", **spec("2")}))
    digest = await in_force(plane, namespace, "2")
    there = await wait_for_status(plane, "True")
    assert there["status"]["digest"] == digest

    async def is_warned() -> bool:
        await site.policy(document("3"))
        words = "PolicyOverridden: FabricPolicy railwright-system/railwright-policy is in force"
        return any(words in warning for warning in plane.api.warnings)

    await waiting.wait(is_warned, describe="the warning about a ConfigMap without effect")
    head, line = await print_columns(plane)
    assert head == ["NAME", "DEFAULT", "ACCEPTED", "AGE"]
    assert line[:3] == ["railwright-policy", "ib", "True"]
    head, line = await print_columns(plane, "-o", "wide")
    assert head == ["NAME", "DEFAULT", "ACCEPTED", "DIGEST", "MESSAGE", "AGE"]
    assert line[3:5] == [digest, "the policy is in force"]

    await conditions.event(plane.api, sites.NAMESPACE, "PolicyOverridden", of=sites.CONFIGMAP)
    assert (await admit(plane, namespace))[1] == "2"
    for server in (site.webhook, site.extender):
        assert f'digest="{digest}"' in await server.metrics()

    broken = resource({**spec("4"), "defaultFabric": "absent", "colour": "red"})
    broken["metadata"] = there["metadata"]
    with pytest.raises(api.ApiError) as refused:
        await plane.api.replace(broken)
    assert "2 errors in spec:" in refused.value.message
    assert "spec.defaultFabric: " in refused.value.message
    assert "spec.colour: " in refused.value.message

    await plane.api.delete(VALIDATION, "railwright")
    there = await plane.api.get(KIND, "railwright-policy", sites.NAMESPACE)

    async def replace_unchecked() -> dict:
        try:
            return await plane.api.replace({**there, "spec": broken["spec"]})
        except api.ApiError as error:
            raise AssertionError(str(error)) from None

    await waiting.wait(replace_unchecked, describe="the API server to check nothing any more")
    invalid = await wait_for_status(plane, "False")
    assert invalid["status"]["digest"] == digest
    assert "spec.colour: " in invalid["status"]["conditions"][0]["message"]
    assert (await admit(plane, namespace)) == (digest, "2"), "the last valid policy stays"

    await plane.api.delete(KIND, "railwright-policy", sites.NAMESPACE)
    assert await in_force(plane, namespace, "3") != by_config_map
    await sites.wait_metric(site.extender, "railwright_policy_valid", 1)


async def test_servers_notice_that_the_definition_comes_and_goes(plane, namespace, site, without_definition):
    await site.install(document("1"), namespace)
    await in_force(plane, namespace, "1")
    await install_definition(plane)
    await plane.api.create(resource(spec("2")))
    await in_force(plane, namespace, "2")
    await remove_definition(plane)
    await in_force(plane, namespace, "1")


async def test_definition_and_resource_are_applied_together(plane, without_definition, tmp_path):
    (tmp_path / "crds.yaml").write_text((BASE / "crds.yaml").read_text())
    (tmp_path / "policy.yaml").write_text(json.dumps(resource(spec("1"))))
    (tmp_path / "kustomization.yaml").write_text("resources: [crds.yaml, policy.yaml]")
    with pytest.raises(AssertionError, match='no matches for kind "FabricPolicy"'):
        await plane.kubectl("apply", "-k", str(tmp_path), f"--cache-dir={tmp_path}/kinds")  # of this test only
    await plane.kubectl("wait", "--for=condition=Established", "crd", DEFINITION["metadata"]["name"])
    applied = await plane.kubectl("apply", "-k", str(tmp_path))
    assert "fabricpolicy.railwright.io/railwright-policy created" in applied
