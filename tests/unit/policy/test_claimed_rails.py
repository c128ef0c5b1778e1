"""What a fabric's claimed rails become: resource names, CEL expressions and the configuration of drivers."""

import admitting
import devices
import pytest
import shapes

from railwright.cli.clouds import profiles
from railwright.cluster import policies
from railwright.fabric import intent
from railwright.fabric.claims import claim_templates, selectors, slices
from railwright.fabric.policy import compiled, model

HEAD = """\
apiVersion: railwright.io/v1alpha1
fabrics:
  roce:
    transport: roce
    gpusPerNode: 8
"""
GPUS = "acceleratorClass: gpu.nvidia.com"


def compile_fabric(claims: str, rails: str, more: str = "") -> claim_templates.ClaimedFabric:
    policy = policies.read(f"{HEAD}    claims: {{{claims}}}\n    rails: [{rails}]\n{more}")
    assert isinstance(policy, model.Policy), policy
    claims = compiled.compile_claims("roce", policy.document)
    assert claims is not None
    return claims


def list_nics():
    """Return the NICs of an EKS p4d node by name."""
    return {device.id.device: device for device in list_offered(devices.build_slices("n")[:1])}


def list_offered(trees):
    index = slices.SliceIndex()
    for offered in devices.read_slices(*trees):
        index.replace_slice(None, offered)
    return [*index.devices.values()]


def find_matching(expressions, offered):
    """Return the names of the devices that match all expressions."""
    selection = selectors.parse_terms(tuple(expressions))
    return sorted(
        device.id.device for device in offered if selectors.selects_device(selection, device.device, device.id.driver)
    )


@pytest.mark.parametrize(
    ("rail", "device"),
    [
        ("device: rdmap32s27", "pci-0000-20-1b-0"),
        ("claim: rdmap32s27", "pci-0000-20-1b-0"),
        ("device: mlx5_0, claim: rdmap32s27", "pci-0000-20-1b-0"),
    ],
)
def test_the_expression_of_a_rail_selects_only_its_device(rail, device):
    claims = compile_fabric("deviceClass: dranet", f"{{name: rail0, {rail}}}")
    expression = claims.rails["rail0"].expression
    assert find_matching((expression,), list_nics().values()) == [device]


def test_a_rail_selects_devices_by_the_attribute_in_the_key_rail_attribute():
    claims = "deviceClass: dranet, railAttribute: dra.net/pciAddress"
    rail = compile_fabric(claims, '{name: rail0, claim: "0000:20:1b.0"}').rails["rail0"]
    path = 'device.attributes["dra.net"].pciAddress'
    assert rail.expression == f'has({path}) && {path} == "0000:20:1b.0"'


def test_a_rail_with_a_device_per_node_shape_selects_any_of_these_devices():
    shapes = "nodeShapes:\n- {name: a, match: {a: b}, devices: {rail0: mlx5_4}}\n"
    rail = compile_fabric("deviceClass: dranet", "{name: rail0, device: mlx5_0}", shapes).rails["rail0"]
    path = 'device.attributes["dra.net"].rdmaDevice'
    assert rail.expression == f'has({path}) && {path} in ["mlx5_0", "mlx5_4"]'


@pytest.mark.parametrize(
    ("claims", "attribute"),
    [
        (GPUS, "resource.kubernetes.io/pcieRoot"),
        (f"{GPUS}, pairBy: numaNode", "resource.kubernetes.io/numaNode"),
        (f"{GPUS}, pairBy: example.com/pair", "example.com/pair"),
        (f"{GPUS}, pairBy: none", ""),
        ("pairBy: none", ""),
    ],
)
def test_gpus_and_nics_are_paired_by_the_attribute_in_the_key_pair_by(claims, attribute):
    compiled_claims = compile_fabric(f"deviceClass: dranet, {claims}", "{name: rail0, device: mlx5_0}")
    assert compiled_claims.pair_attribute == attribute


def test_a_claimed_rail_has_a_resource_name_that_no_pod_requests():
    policy = policies.read(f"{HEAD}    claims: {{deviceClass: dranet}}\n    rails: [{{name: rail0, device: mlx5_0}}]\n")
    assert isinstance(policy, model.Policy)
    (rail,) = compiled.resolve_rails("roce", policy.document)
    filled = intent.fill_resources("roce", policy.document.fabrics["roce"], {})
    assert rail.resource == "claims.railwright.io/roce.rail0"
    assert [rail.resource for rail in filled.rails] == ["claims.railwright.io/roce.rail0"]
    assert compiled.list_resources(policy.document) == frozenset()  # pods do not request it


SHIPPED = {  # of each published node: a policy of claims that is shipped for it
    "gke-a3-ultra": (admitting.EXAMPLES / "claims" / "gke-a3-ultra.yaml").read_text(),
    "eks-p5": profiles.find_profile("eks-efa-claims").text,
}


@pytest.mark.parametrize("site", SHIPPED)
def test_each_rail_of_a_shipped_policy_selects_devices_of_one_hardware_group_on_its_published_node_shape(site):
    policy = policies.read(SHIPPED[site])
    assert isinstance(policy, model.Policy), policy
    claims = compiled.list_claimed_fabrics(policy.document)[-1]
    shape = shapes.load(site)
    offered = list_offered(shape.build_slices("n"))
    assert claims.device_class in shape.classes
    for rail in claims.rails.values():
        in_class = shape.classes[claims.device_class]
        nics = find_matching((in_class, rail.expression), offered)
        assert len(nics) == claims.devices_per_rail, rail.name
        assert len({shape.groups[name] for name in nics}) == 1
