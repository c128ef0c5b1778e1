"""The endpoints that the leader writes for the Service. Manifests, roles and code name the same objects."""

import json
import pathlib

import api_stub
import msgspec
import objects_stub
import pytest
import yaml

from extender import leadership
from railwright.fabric import names

BASE = pathlib.Path(__file__).parents[3] / "manifests" / "base"
AT = leadership.PodAddress(pod="extender-1", namespace="railwright-system", ip="10.0.0.1")
OURS = {"extender": 9000, "ops": 9001}
CORE = f"/api/v1/namespaces/{AT.namespace}"
SLICE = f"/apis/discovery.k8s.io/v1/namespaces/{AT.namespace}/endpointslices/{names.EXTENDER_SERVICE}-ipv4"


def documents(name: str, kind: str) -> list[dict]:
    return [document for document in yaml.safe_load_all((BASE / name).read_text()) if document["kind"] == kind]


def service() -> leadership.Service:
    [document] = documents("extender.yaml", "Service")
    return msgspec.convert({**document, "metadata": {**document["metadata"], "uid": "u"}}, leadership.Service)


def list_granted_names(verb: str, resource: str) -> set[str]:
    """Return the names for which the role in our own namespace grants a verb."""
    [role] = documents("extender-rbac.yaml", "Role")
    rules = [rule for rule in role["rules"] if verb in rule["verbs"] and resource in rule["resources"]]
    return {name for rule in rules for name in rule.get("resourceNames", ["any"])}


def test_a_named_port_is_the_one_this_process_listens_on():
    assert leadership.build_ports(service(), OURS) == [
        {"name": "extender", "port": 9000, "protocol": "TCP"},
        {"name": "ops", "port": 9001, "protocol": "TCP"},
    ]


@pytest.mark.parametrize(
    ("port", "number"),
    [
        ({"port": 80, "targetPort": 8713}, 8713),
        ({"port": 8713}, 8713),
        ({"port": 80, "targetPort": "ops"}, 9001),
        ({"port": 80, "targetPort": "somebody-elses"}, None),
    ],
)
def test_a_port_may_be_a_number_and_an_unknown_name_is_left_out(port, number):
    made = msgspec.convert({"spec": {"ports": [port]}}, leadership.Service)
    assert [port["port"] for port in leadership.build_ports(made, OURS)] == ([number] if number else [])


def test_the_endpoint_slice_has_this_pod_alone_and_belongs_to_the_service():
    made = leadership.build_endpoint_slice(service(), AT, leadership.build_ports(service(), OURS))
    assert [endpoint["addresses"] for endpoint in made["endpoints"]] == [["10.0.0.1"]]
    assert made["addressType"] == "IPv4"
    assert made["metadata"]["labels"]["kubernetes.io/service-name"] == names.EXTENDER_SERVICE
    assert made["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] == "railwright"
    assert [
        (owner_reference["kind"], owner_reference["uid"]) for owner_reference in made["metadata"]["ownerReferences"]
    ] == [("Service", "u")]
    assert made["endpoints"][0]["targetRef"] == {"kind": "Pod", "namespace": AT.namespace, "name": AT.pod}


def test_the_endpoints_are_not_mirrored_into_a_second_slice():
    made = leadership.build_endpoints(service(), AT, leadership.build_ports(service(), OURS))
    assert made["metadata"]["labels"]["endpointslice.kubernetes.io/skip-mirror"] == "true"
    assert made["subsets"][0]["addresses"][0]["ip"] == "10.0.0.1"


def test_fields_added_by_the_api_server_are_no_difference_and_another_address_is():
    endpoint_slice = leadership.build_endpoint_slice(service(), AT, leadership.build_ports(service(), OURS))
    present = json.loads(json.dumps(endpoint_slice))
    present["metadata"] |= {"uid": "x", "generation": 3}
    present["endpoints"][0]["nodeName"] = "n"
    assert leadership._covers(present, endpoint_slice)
    present["endpoints"][0]["addresses"] = ["10.0.0.2"]
    assert not leadership._covers(present, endpoint_slice)
    assert not leadership._covers({**present, "endpoints": None}, endpoint_slice)
    assert leadership._covers({"endpoints": None}, {"endpoints": []})


@pytest.mark.parametrize("ip", ["10.0.0.1", "fd00::1"])
def test_the_role_grants_the_objects_that_a_leader_writes_by_name(ip):
    at = leadership.PodAddress(pod="extender-1", namespace="railwright-system", ip=ip)
    made = leadership.build_endpoint_slice(service(), at, [])
    for verb in ("get", "update"):
        assert made["metadata"]["name"] in list_granted_names(verb, "endpointslices")
        assert list_granted_names(verb, "endpoints") == {
            leadership.build_endpoints(service(), at, [])["metadata"]["name"]
        }
        assert list_granted_names(verb, "leases") == {names.EXTENDER_SERVICE}
    assert list_granted_names("get", "services") == {names.EXTENDER_SERVICE}
    assert list_granted_names("create", "leases") == {names.EXTENDER_SERVICE}, (
        "it is created by PUT, whose path has its name"
    )
    for resource in ("endpointslices", "endpoints"):
        assert list_granted_names("create", resource) == {"any"}, "a POST has no name to be granted by"


def test_the_service_has_no_selector_and_two_replicas_run():
    [document] = documents("extender.yaml", "Service")
    assert "selector" not in document["spec"]
    [deployment] = documents("extender.yaml", "Deployment")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert deployment["spec"]["replicas"] == 2
    assert deployment["spec"]["strategy"] == {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert "--leader-elect" in container["args"]
    shared = {"RAILWRIGHT_NAMESPACE", "RAILWRIGHT_INSTALLATION"}  # of every server
    assert {variable["name"] for variable in container["env"]} == set(leadership._PARTS.values()) | shared
    [budget] = documents("extender.yaml", "PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1


async def test_a_leader_that_lost_its_lease_while_writing_keeps_the_next_leaders_address(tmp_path):
    """A slow API server, or a process that was stopped: between two of its requests another one leads."""
    holder = ["one"]
    after = leadership.PodAddress(pod="extender-2", namespace=AT.namespace, ip="10.0.0.2")
    async with objects_stub.serving() as api:

        def overtaken(request):
            if request.path == SLICE and request.method == "GET" and holder == ["one"]:
                holder[:] = ["two"]
                api.keep(
                    SLICE, leadership.build_endpoint_slice(service(), after, leadership.build_ports(service(), OURS))
                )

        api.keep(f"{CORE}/services/{names.EXTENDER_SERVICE}", msgspec.to_builtins(service()))
        api.fault = overtaken
        async with api_stub.connected(tmp_path, api.port) as client:
            await leadership.EndpointPublisher(client, AT, OURS, lambda: holder == ["one"])._try_write()
        assert [endpoint["addresses"] for endpoint in api.stored[SLICE]["endpoints"]] == [["10.0.0.2"]]
        assert f"{CORE}/endpoints/{names.EXTENDER_SERVICE}" not in api.stored


@pytest.mark.parametrize("place", ["services/railwright-extender", "endpointslices/railwright-extender-ipv4"])
async def test_a_proxys_error_page_is_a_failure_that_is_tried_again(tmp_path, place):
    async with objects_stub.serving() as api:
        api.keep(f"{CORE}/services/{names.EXTENDER_SERVICE}", msgspec.to_builtins(service()))
        api.fault = lambda request: objects_stub.GARBAGE if request.path.endswith(place) else None
        async with api_stub.connected(tmp_path, api.port) as client:
            publishing = leadership.EndpointPublisher(client, AT, OURS, lambda: True)
            await publishing._try_write()
            assert SLICE not in api.stored
            api.fault = lambda _: None
            await publishing._try_write()
        assert [endpoint["addresses"] for endpoint in api.stored[SLICE]["endpoints"]] == [[AT.ip]]
