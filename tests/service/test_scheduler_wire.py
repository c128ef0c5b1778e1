"""kube-scheduler's captured requests, changed in every way a release or a mistake might: served over a real socket."""

import copy
import http.client
import json
import pathlib
import re
import subprocess
import sys
import time

import placing
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from placing import LEAF, RESOURCES, SPINE

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIRE = ROOT / "tests" / "data" / "wire"
VERBS = ("filter", "prioritize")
BODIES = {verb: json.loads((WIRE / f"kube-scheduler-{verb}.json").read_bytes()) for verb in VERBS}
# Objects whose keys are names that users choose: a new key there is no unknown field.
FREE = {"labels", "annotations", "limits", "requests", "nodeSelector", "fieldsV1"}
# What Go writes as null where it is empty: maps, slices, pointers, and times.
NULLABLE = {
    *("creationTimestamp", "labels", "annotations", "ownerReferences", "managedFields", "finalizers", "volumes"),
    *("limits", "requests", "volumeMounts", "tolerations", "securityContext", "env", "ports", "affinity", "Nodes"),
    *("nodeSelector", "initContainers", "controller", "priority", "defaultMode", "sources", "items"),
}
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def node(index: int) -> dict:
    rails = {} if index == 7 else dict.fromkeys(RESOURCES, "1")  # the last has none: refused for good
    have = {"cpu": "128", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8", **rails}
    labels = {LEAF: f"leaf-{index // 3}", SPINE: "spine"}
    metadata = {"name": f"gpu-{index}", "uid": f"node-{index}", "labels": labels}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "status": {"allocatable": have, "capacity": have},
    }


def holder() -> dict:
    container = {"name": "c", "image": "i", "resources": {"limits": {RESOURCES[2]: "1"}}}
    metadata = {"name": "holder", "namespace": "prod", "uid": "holder"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": "gpu-6", "containers": [container]},
        "status": {"phase": "Running"},
    }


class Served:
    """The extender as a user runs it, spoken to over one connection."""

    def __init__(self, process: subprocess.Popen) -> None:
        self.ports = {}
        while len(self.ports) < 2:
            line = process.stderr.readline()
            assert line, "the extender ended at its start"
            if match := re.match(r"(ops )?listening on \S+:(\d+)$", line.strip()):
                self.ports[match[1] or ""] = int(match[2])
        self.connection = http.client.HTTPConnection("127.0.0.1", self.ports[""], timeout=20)

    def post(self, verb: str, tree: object) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        path = verb if verb.startswith("/") else f"/scheduler/{verb}"
        self.connection.request("POST", path, json.dumps(tree), headers)
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def ops(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["ops "], timeout=20)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def wait_ready(self) -> None:
        deadline = time.monotonic() + 20
        while (readiness := self.ops("/readyz"))[0] != 200:
            assert time.monotonic() < deadline, readiness
            time.sleep(0.02)

    def entries(self) -> float:
        """Return the number of assumed pods by the metric for operators."""
        matches = re.findall(r"^railwright_assumed_pods\{.*\} (\S+)$", self.ops("/metrics")[1], re.MULTILINE)
        assert matches
        return sum(map(float, matches))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wire")
    (folder / "policy.yaml").write_text(yaml.safe_dump(placing.document(required=True)))
    # the pod that the captured event announces is pending: one that nobody has seen would use no devices
    announced = json.loads((WIRE / "volcano-allocate.json").read_bytes())["task"]["Pod"]
    pending = {"apiVersion": "v1", "kind": "Pod", **announced, "spec": {**announced["spec"], "nodeName": ""}}
    items = [*(node(index) for index in range(8)), holder(), pending]
    (folder / "snapshot.yaml").write_text(yaml.safe_dump_all(items))
    sources = [f"--snapshot={folder / 'snapshot.yaml'}", f"--policy={folder / 'policy.yaml'}"]
    ports = ["--listen=127.0.0.1:0", "--ops-listen=127.0.0.1:0", "--plain-http", "--drain-seconds=0"]
    command = [sys.executable, "-m", "extender", *ports, *sources]
    with (
        (folder / "log").open("w+") as log,
        subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, stdout=log, text=True) as process,
    ):
        running = Served(process)
        running.wait_ready()
        yield running
        running.connection.close()
        process.terminate()
        process.communicate(timeout=20)


def list_requested_nodes(tree: object) -> set[str]:
    return set(tree["NodeNames"])


def check(verb: str, tree: object, status: int, body: bytes) -> None:
    """Assert that kube-scheduler can use the answer, or that the answer says why not."""
    document = json.loads(body)
    if status == 400:
        assert document["error"]["reason"]
        return
    assert status == 200, body
    if verb == "prioritize":
        assert {row["Host"] for row in document} == list_requested_nodes(tree)
        assert all(type(row["Score"]) is int and 0 <= row["Score"] <= 10 for row in document)
        return
    groups = [document["NodeNames"], list(document["FailedNodes"]), list(document["FailedAndUnresolvableNodes"])]
    names = [name for group in groups for name in group]
    assert set(names) == list_requested_nodes(tree)
    assert len(names) == len(set(names))
    assert document["Error"] == ""
    assert all(isinstance(reason, str) and reason for group in groups[1:] for reason in list_reasons(document, group))


def list_reasons(answer: dict, names: list[str]) -> list[str]:
    return [{**answer["FailedNodes"], **answer["FailedAndUnresolvableNodes"]}[name] for name in names]


def places(tree: object, path: tuple = ()) -> list[tuple]:
    """Return the path of every value below a tree."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [value_place for key, value in items for value_place in ((*path, key), *places(value, (*path, key)))]


def get_at(tree: object, path: tuple) -> object:
    for key in path:
        tree = tree[key]
    return tree


STRUCTS = {
    verb: [
        path
        for path in [(), *places(body)]
        if isinstance(get_at(body, path), dict) and FREE.isdisjoint(map(str, path)) and "fieldsV1" not in path
    ]
    for verb, body in BODIES.items()
}
EMPTIED = {verb: [path for path in places(body) if path[-1] in NULLABLE] for verb, body in BODIES.items()}
UNKNOWN = st.from_regex(r"[a-z]{3,8}Future[A-Z][a-z]{2,8}", fullmatch=True)
verbs = pytest.mark.parametrize("verb", VERBS)


def change(verb: str, path: tuple, value: object) -> dict:
    tree = copy.deepcopy(BODIES[verb])
    get_at(tree, path[:-1])[path[-1]] = value
    return tree


def test_the_captured_requests_are_answered_with_all_three_outcomes(served):
    status, body = served.post("filter", BODIES["filter"])
    check("filter", BODIES["filter"], status, body)
    document = json.loads(body)
    assert document["NodeNames"] == [f"gpu-{index}" for index in range(6)]
    assert list(document["FailedNodes"]) == ["gpu-6"]
    assert list(document["FailedAndUnresolvableNodes"]) == ["gpu-7"]
    status, body = served.post("prioritize", BODIES["prioritize"])
    check("prioritize", BODIES["prioritize"], status, body)
    assert max(row["Score"] for row in json.loads(body)) == 10


@verbs
@given(data=st.data())
def test_fields_of_a_later_release_change_nothing(served, verb, data):
    tree = copy.deepcopy(BODIES[verb])
    for path in data.draw(st.lists(st.sampled_from(STRUCTS[verb]), min_size=1, max_size=6)):
        get_at(tree, path)[data.draw(UNKNOWN)] = data.draw(VALUES)
    assert served.post(verb, tree) == served.post(verb, BODIES[verb])


@verbs
@given(data=st.data())
def test_empty_lists_and_maps_of_go_may_be_null(served, verb, data):
    tree = copy.deepcopy(BODIES[verb])
    for path in data.draw(st.sets(st.sampled_from(EMPTIED[verb]), min_size=1, max_size=6)):
        if path in places(tree):  # not below one that is null by now
            get_at(tree, path[:-1])[path[-1]] = None
    status, body = served.post(verb, tree)
    assert status == 200, body
    check(verb, tree, status, body)


@verbs
@given(data=st.data())
def test_any_value_is_answered_or_refused_with_a_reason(served, verb, data):
    path = data.draw(st.sampled_from([path for path in places(BODIES[verb]) if path[0] != "NodeNames"]))
    tree = change(verb, path, data.draw(VALUES))
    check(verb, tree, *served.post(verb, tree))


@verbs
@given(value=VALUES)
def test_node_names_that_are_no_list_of_names_are_refused(served, verb, value):
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return
    status, body = served.post(verb, BODIES[verb] | {"NodeNames": value})
    assert (status, bool(json.loads(body)["error"]["reason"])) == (400, True)


def member(index: int, of: str) -> dict:
    tree = copy.deepcopy(BODIES["filter"])
    metadata = {"name": f"{of}-{index}", "uid": f"{of}-{index}"}
    tree["Pod"]["metadata"] |= metadata
    tree["Pod"]["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"] = of
    return tree


def test_requests_of_a_scheduler_assume_no_pod(served):
    def answers() -> list[tuple[int, bytes]]:
        return [served.post(verb, member(0, "first")) for verb in VERBS]

    before = answers()
    for number in range(300):
        of = f"job-{number % 7}"
        tree = member(number, of)
        tree["NodeNames"] = tree["NodeNames"][number % 5 :]  # as a scheduler's dry runs hold nodes back
        for verb in VERBS:
            assert served.post(verb, tree)[0] == 200
    assert served.entries() == 0
    assert answers() == before


def test_assumed_pods_are_busy_for_other_schedulers(served):
    """The captured allocate of a pod on gpu-5, by the path of one instance; the captured questions by other paths."""
    event = json.loads((WIRE / "volcano-allocate.json").read_bytes())
    asked = json.loads((WIRE / "volcano-prioritize.json").read_bytes())
    asked["task"]["UID"] = asked["task"]["Pod"]["metadata"]["uid"] = "theirs"
    for node in asked["nodes"]:
        node["Idle"]["ScalarResources"] |= dict.fromkeys(RESOURCES, 1000)

    def post(path: str, tree: dict) -> dict:
        status, body = served.post(path, tree)
        assert status == 200, body
        return json.loads(body)

    def predicate(scope: str, name: str) -> int:
        node = next(node for node in asked["nodes"] if node["Name"] == name)
        return post(f"/volcano/{scope}/predicate", {"task": asked["task"], "node": node})["code"]

    assert predicate("blue", "gpu-5") == 0
    for scope in ("red", "blue"):
        post(f"/volcano/{scope}/session-close", {})
    assert post("/volcano/red/allocate", event)["errorMessage"] == ""
    try:
        assert [predicate("blue", name) for name in ("gpu-5", "gpu-2")] == [2, 0]
        scores = post("/volcano/blue/prioritize", asked)["nodeScore"]
        assert scores["gpu-5"] == 0 < scores["gpu-2"]
        mine = event["task"] | {"UID": "theirs", "Pod": asked["task"]["Pod"]}
        assert "another scheduler" in post("/volcano/blue/allocate", {"task": mine})["errorMessage"]
        assert list(post("filter", BODIES["filter"])["FailedNodes"]) == ["gpu-5", "gpu-6"]
    finally:
        post("/volcano/red/deallocate", event)
    assert predicate("blue", "gpu-5") == 0
    assert served.entries() == 0
