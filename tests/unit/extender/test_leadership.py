"""A leader and a standby: what they answer, what a leader forgets, and the endpoints that it writes."""

import json
import pathlib
from unittest import mock

import api_stub
import extending
import msgspec
import objects_stub
import pytest
import yaml
from placing import build_assumed_pod, node, pod

from extender import leadership
from railwright.cluster import errors, lease
from railwright.fabric import names
from railwright.serving import metrics, routes, settings

AT = leadership.PodAddress(pod="extender-1", namespace="railwright-system", ip="10.0.0.1")
CALL = routes.Call(b"", {}, {}, {}, "")


class Part(extending.Site):
    """A candidate whose Lease the test sets."""

    def __init__(self) -> None:
        super().__init__([node("a-0", "a")])
        self.counters = metrics.Metrics("extender")
        self.leading = leadership.Leadership(self.verbs.decider, self.counters)
        self.turns: list[bool] = []

    def stand(self) -> None:
        self.leading.build_election(None, AT, seconds=3, eligible=lambda: True)  # type: ignore[arg-type] # it asks nobody
        self.leading.notify(self.turns.append)

    def hold(self, transitions: int, holder: str = "") -> None:
        """Set the holder of the Lease, by default this process, and its term."""
        election = self.leading.election
        record = lease.Record(holder_identity=holder or election.identity, lease_transitions=transitions)
        now = election._clock()
        election._candidate = lease.observe(election._candidate, record, now)
        if not holder:
            election._candidate = lease.acquire(election._candidate, record, now, now)
        election._report_change()

    def announce(self) -> None:
        self.state.assumed.assume(build_assumed_pod(pod("p"), "a-0"))


def build_gated_routes(part: Part) -> list[routes.Route]:
    table = [routes.Route("/scheduler/filter", lambda _: routes.Reply(b"{}"))]
    return part.leading.gate(table)


def test_a_single_extender_always_answers():
    part = Part()
    assert part.leading.is_leader
    [route] = build_gated_routes(part)
    assert route.handle(CALL) == routes.Reply(b"{}")
    part.leading.resign()
    assert part.leading.is_leader


def test_a_standby_names_the_leader_and_its_address():
    part = Part()
    part.stand()
    [route] = build_gated_routes(part)
    with pytest.raises(routes.HttpError, match="nobody leads yet; reconnect to the Service railwright-extender"):
        route.handle(CALL)
    part.hold(1, "extender-2_0a1b2c3d")
    with pytest.raises(routes.HttpError, match="extender-2 leads") as refused:
        route.handle(CALL)
    assert refused.value.status == 503
    part.hold(2)
    assert route.handle(CALL) == routes.Reply(b"{}")
    assert part.turns == [False, True]
    assert part.counters.registry.get_sample_value("railwright_leader_transitions_total") == 1


def test_a_leader_that_resigned_answers_503():
    part = Part()
    part.stand()
    part.hold(0)
    part.leading.resign()
    assert not part.leading.is_leader
    assert part.turns == [False, True, False]


def test_assumed_pods_are_forgotten_only_after_another_replica_has_led():
    part = Part()
    part.state.cluster.upsert_pod(pod("seen", group="gang"))
    part.stand()
    part.hold(4)
    part.announce()
    part.leading.election._step_down()  # the API server did not answer in time
    with mock.patch.object(part.verbs.decider, "forget_sessions") as forget_sessions:
        part.hold(4)
    forget_sessions.assert_called_once_with()
    assert len(part.state.assumed) == 1, "no other request arrived"
    gangs, explanations = part.verbs.decider.gangs, part.verbs.decider.explanations
    part.hold(5, "extender-2_0a1b2c3d")
    assert len(part.state.assumed) == 1, "a standby may become the leader of the same term again"
    part.hold(6)
    assert len(part.state.assumed) == 0
    assert part.verbs.decider.gangs is not gangs
    assert part.verbs.decider.explanations is not explanations
    assert len(part.state.cluster.pods) == 1, "what the cluster shows stays"


def test_a_lease_is_renewed_often_enough_and_has_the_duration_of_client_go_by_default():
    assert leadership.build_timings(3.0) == lease.Timings(duration=3.0, renew=2.0, retry=0.4)
    options = settings.parse("extender", ["--plain-http", "--listen=127.0.0.1:0"], {})
    default = leadership.build_timings(options.lease_seconds)
    assert default == lease.Timings() == lease.Timings(duration=15.0, renew=10.0, retry=2.0)


def test_every_missing_variable_is_named_with_where_it_comes_from():
    full = {"POD_NAME": "extender-1", "POD_NAMESPACE": "railwright-system", "POD_IP": "10.0.0.1"}
    assert leadership.get_pod_address(full) == AT
    with pytest.raises(errors.ConfigurationError, match="POD_NAME, POD_IP not set: set them from the downward API"):
        leadership.get_pod_address({"POD_NAMESPACE": "x", "POD_IP": ""})


# --- the endpoints of the Service -----------------------------------------------------------------------------


BASE = pathlib.Path(__file__).parents[3] / "manifests" / "base"
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
    [endpoint] = made["endpoints"]
    assert endpoint["addresses"] == ["10.0.0.1"]
    assert endpoint["conditions"] == {"ready": True, "serving": True, "terminating": False}
    assert made["addressType"] == "IPv4"
    assert made["metadata"]["labels"]["kubernetes.io/service-name"] == names.EXTENDER_SERVICE
    assert made["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] == "railwright"
    assert [(owner["kind"], owner["uid"]) for owner in made["metadata"]["ownerReferences"]] == [("Service", "u")]
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
async def test_a_proxys_error_page_is_a_failure_that_is_tried_again(tmp_path, place, caplog):
    async with objects_stub.serving() as api:
        api.keep(f"{CORE}/services/{names.EXTENDER_SERVICE}", msgspec.to_builtins(service()))
        api.fault = lambda request: objects_stub.GARBAGE if request.path.endswith(place) else None
        async with api_stub.connected(tmp_path, api.port) as client:
            publishing = leadership.EndpointPublisher(client, AT, OURS, lambda: True)
            await publishing._try_write()
            assert caplog.messages == ["leader not published"]
            assert SLICE not in api.stored
            api.fault = lambda _: None
            await publishing._try_write()
        assert [endpoint["addresses"] for endpoint in api.stored[SLICE]["endpoints"]] == [[AT.ip]]
