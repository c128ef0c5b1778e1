"""The shipped examples: admission turns each job with one label into its hand-written equivalent."""

import base64
import copy
import json

import conf_reading
import jsonpatch
import msgspec
import pytest
import yaml
from admitting import EXAMPLES
from meanings import meaning, networks_of, pods_of, ranks_of

from railwright.cluster import policies
from railwright.fabric import names, quantity, views
from railwright.fabric.injection import facts
from railwright.fabric.multus import annotation
from railwright.fabric.workloads import membership
from webhook import pods

SITES = ("360-roce", "360-infiniband", "vivo-roce", "sriov-8-rail", "pvrdma-mpi", "ack-erdma")
VOLCANO_SITES = ("360-roce", "360-infiniband", "vivo-roce")
TUNING = {"NCCL_ALGO"}  # a user's own, in the job with the label as in the hand-written one
RDMA = tuple(f"nvidia.com/mlx5_{index}" for index in range(4))


def load(site: str, name: str) -> dict:
    return yaml.safe_load((EXAMPLES / site / f"{name}.yaml").read_text())


def policy_of(site: str):
    policy = policies.read((EXAMPLES / site / "policy.yaml").read_text())
    assert not isinstance(policy, policies.Rejected), policy
    return policy


def load_all(site: str, name: str) -> list[dict]:
    return list(yaml.safe_load_all((EXAMPLES / site / f"{name}.yaml").read_text()))


def pod_of(job: dict) -> dict:
    (pod,) = pods_of(job).values()
    return pod


def answer_review(site: str, pod: dict, known: facts.ClusterFacts | None = None) -> tuple[dict, list[str]]:
    """Return the pod after admission, and the warnings."""
    namespace = pod["metadata"]["namespace"]
    request = {
        "uid": "1",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "operation": "CREATE",
        "namespace": namespace,
        "object": pod,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    answer = pods.handle(
        json.dumps(review).encode(), policy_of(site), lambda namespace: known or facts.ClusterFacts(namespace)
    )
    response = json.loads(answer.body)["response"]
    assert response["allowed"], response
    patch = json.loads(base64.b64decode(response.get("patch", base64.b64encode(b"[]"))))
    return jsonpatch.apply_patch(copy.deepcopy(pod), patch), response.get("warnings", [])


def admit(site: str, pod: dict, known: facts.ClusterFacts | None = None) -> dict:
    after, warnings = answer_review(site, pod, known)
    assert all(warning.startswith("N34: ") and "NCCL_ALGO=" in warning for warning in warnings), (
        warnings
    )  # the user's own tuning, which lint speaks of
    return after


@pytest.mark.parametrize("site", [site for site in SITES if site != "pvrdma-mpi"])
def test_the_labelled_job_is_admitted_as_its_handwritten_twin(site):
    given, twins = pods_of(load(site, "job")), pods_of(load(site, "handwritten"))
    for role, twin in twins.items():
        assert meaning(admit(site, given[role])) == meaning(twin)
        assert meaning(given[role]) != meaning(twin), "the job must lack what the webhook is to add"


def test_mpi_ranks_read_by_file_what_mpirun_passed():
    site = "pvrdma-mpi"
    twins = ranks_of(pods_of(load(site, "handwritten")))
    ours = ranks_of({role: admit(site, pod) for role, pod in pods_of(load(site, "job")).items()})
    assert ours == twins
    assert ours[0] == {"NCCL_DEBUG": "INFO", "NCCL_IB_DISABLE": "0", "NCCL_NET_GDR_LEVEL": "LOC"}


@pytest.mark.parametrize(("label", "read"), [("tcp", {"NCCL_NET": "Socket"}), ("none", {})])
def test_the_mpi_job_is_switched_to_tcp_by_one_label_value(label, read):
    job = load("pvrdma-mpi", "job")
    job["metadata"]["labels"][names.FABRIC] = label
    after = {role: admit("pvrdma-mpi", pod) for role, pod in pods_of(job).items()}
    worker = after["worker"]
    assert "volumes" not in worker["spec"] or all("hostPath" not in volume for volume in worker["spec"]["volumes"])
    assert not worker["spec"]["containers"][0].get("securityContext", {}).get("privileged")
    settings = conf_reading.read(worker["metadata"].get("annotations", {}).get(names.NCCL_CONF, ""))
    assert {key: settings[key] for key in read} == read
    assert bool(settings) == bool(read)


@pytest.mark.parametrize("site", SITES)
def test_the_job_is_the_handwritten_one_with_one_label(site):
    job, twin = (json.loads(json.dumps(load(site, name))) for name in ("job", "handwritten"))
    labels = [job["metadata"].pop("labels", {}), *(part.get("metadata", {}).pop("labels", {}) for part in parts(job))]
    (label,) = [label_or_none for label_or_none in labels if label_or_none]
    assert list(label) == [names.FABRIC]
    assert label[names.FABRIC] in policy_of(site).document.fabrics
    for template in parts(twin):
        extra = {names.NETWORKS, *next(iter(policy_of(site).document.fabrics.values())).annotations}
        assert set(template.pop("metadata", {}).get("annotations", {})) <= extra
        (container,) = template["spec"]["containers"]
        own = [variable for variable in container.pop("env", []) if variable["name"] in TUNING]
        container |= {"env": own} if own else {}
        for amounts in container.get("resources", {}).values():
            for name in [name for name in amounts if name != "nvidia.com/gpu"]:
                assert quantity.parse(amounts.pop(name)) in {1, 8}
        for key in ("securityContext", "volumeMounts"):
            container.pop(key, None)
        template["spec"].pop("volumes", None)
        words = container.get("command", [])
        for at in reversed([i for i, word in enumerate(words) if word.startswith("NCCL_") and words[i - 1] == "-x"]):
            del words[at - 1 : at + 1]
    for template in parts(job):
        if not template.get("metadata", {"": ""}):
            del template["metadata"]
    assert job == twin


def parts(job: dict) -> list[dict]:
    """Return the templates themselves, to be changed in place."""
    spec = job["spec"]
    replicas = spec.get("tasks") or (spec.get("pytorchReplicaSpecs") or spec["mpiReplicaSpecs"]).values()
    return [replica["template"] for replica in replicas]


@pytest.mark.parametrize("site", VOLCANO_SITES)
def test_volcano_jobs_are_gangs_by_the_pytorch_plugin(site):
    for name in ("job", "handwritten"):
        job = load(site, name)
        assert (job["apiVersion"], job["kind"]) == ("batch.volcano.sh/v1alpha1", "Job")
        assert "pytorch" in job["spec"]["plugins"]
        assert job["spec"]["minAvailable"] == job["spec"]["tasks"][0]["replicas"]


@pytest.mark.parametrize("site", SITES)
def test_a_second_admission_changes_nothing(site):
    for pod in pods_of(load(site, "job")).values():
        once = admit(site, pod)
        assert admit(site, once) == once


def test_handwritten_pods_keep_every_value():
    pod = pod_of(load("360-roce", "handwritten"))
    pod["metadata"]["labels"] = {names.FABRIC: "roce"}
    result = admit("360-roce", pod)
    assert json.loads(result["metadata"]["annotations"].pop(names.INJECTION))["fabric"] == "roce"
    assert result == pod


def test_the_derived_twin_states_no_device_and_finds_it_in_the_pod():
    pod = pod_of(load("360-roce", "job"))
    pod["metadata"]["labels"][names.FABRIC] = "default"
    spec = meaning(admit("360-roce", pod))["spec"]
    assert [container["name"] for container in spec["initContainers"]] == [names.PREFLIGHT_CONTAINER]
    (container,) = spec["containers"]
    assert container["env"] == {
        "NCCL_DEBUG": "INFO",
        "NCCL_NET_GDR_READ": "1",
        "NCCL_CONF_FILE": "/run/railwright/nccl.conf",
        "UCX_CONFIG_DIR": "/run/railwright",
        "NCCL_SOCKET_IFNAME": "=eth0",
        "GLOO_SOCKET_IFNAME": "eth0",
        "TP_SOCKET_IFNAME": "eth0",
    }


@pytest.mark.parametrize("site", SITES)
def test_every_fabric_of_every_example_admits_its_job(site):
    known = networks_of(site)
    for name, fabric in policy_of(site).document.fabrics.items():
        resources = {rail.resource or known.get(tuple((rail.network or "/").split("/"))) for rail in fabric.rails} - {
            None
        }
        for pod in pods_of(load(site, "job")).values():
            pod["metadata"].setdefault("labels", {})[names.FABRIC] = name
            namespace = pod["metadata"]["namespace"]
            offered = frozenset({*resources, "nvidia.com/gpu"})
            (container,) = admit(site, pod, facts.ClusterFacts(namespace, {}, known, offered))["spec"]["containers"]
            if "nvidia.com/gpu" in container.get("resources", {}).get("limits", {}):
                assert resources <= set(container["resources"]["limits"])


def test_pods_on_the_host_network_get_a_warning():
    pod = pod_of(load("vivo-roce", "job"))
    pod["spec"]["hostNetwork"] = True
    after, (warning,) = answer_review("vivo-roce", pod)
    assert warning.startswith("HostNetwork: spec.hostNetwork is true: fabric roce adds no networks")
    assert after["metadata"]["annotations"].keys() - pod["metadata"]["annotations"].keys() == {names.INJECTION}
    (container,) = after["spec"]["containers"]
    assert len(container["resources"]["limits"]) == 5, "the devices are the pod's all the same"
    assert "NCCL_SOCKET_IFNAME" not in {entry["name"] for entry in container["env"]}


def test_half_a_node_gets_half_of_the_rails():
    pod = pods_of(load("sriov-8-rail", "job"))["worker"]
    pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "4"
    pod["metadata"]["labels"][names.FABRIC] = "sriov-per-rail"
    known = networks_of("sriov-8-rail")
    after = admit("sriov-8-rail", pod, facts.ClusterFacts("ai-training", {}, known, frozenset(known.values())))
    (container,) = after["spec"]["containers"]
    assert {entry["name"]: entry["value"] for entry in container["env"]}["NCCL_ALGO"] == "allreduce:ring"
    assert [s.name for s in annotation.parse(after["metadata"]["annotations"][names.NETWORKS], "x")] == [
        f"ib{rail}-sriov-rail" for rail in range(4)
    ]
    assert {name for name in container["resources"]["limits"] if "sriov" in name} == {
        f"nvidia.com/ib{rail}_sriov_vf" for rail in range(4)
    }


# --- inference: prefill and decode are two sets ---------------------------------------------------------------

UCX = "UCX_NET_DEVICES"


@pytest.mark.parametrize("part", [0, 1], ids=["prefill", "decode"])
def test_labelled_servers_are_admitted_as_their_handwritten_twins(part):
    given, twins = (pods_of(load_all("llm-d", name)[part]) for name in ("job", "handwritten"))
    assert given.keys() == twins.keys() == {"leader", "worker"}
    for role, twin in twins.items():
        once = admit("llm-d", given[role])
        assert meaning(once) == meaning(twin)
        assert meaning(given[role]) != meaning(twin)
        assert admit("llm-d", once) == once


@pytest.mark.parametrize("part", [0, 1], ids=["prefill", "decode"])
def test_nixl_moves_the_kv_cache_over_the_rails(part):
    for pod in pods_of(load_all("llm-d", "job")[part]).values():
        pod["metadata"]["labels"][names.FABRIC] = "ib-derived"
        (container,) = meaning(admit("llm-d", pod))["spec"]["containers"]
        assert container["env"][UCX] == ",".join(f"ibp{rail}:1" for rail in range(8))
        assert container["env"]["NCCL_IB_HCA"] == "=" + ",".join(f"ibp{rail}" for rail in range(8))
        assert container["resources"]["limits"]["rdma/ib"] == 1


def test_prefill_and_decode_are_one_gang_only_if_they_say_so():
    pods = [msgspec.convert(pod, views.Pod) for job in load_all("llm-d", "job") for pod in pods_of(job).values()]
    gangs = [membership.find_gang(pod) for pod in pods]
    assert (gangs[0], gangs[2]) == (gangs[1], gangs[3])
    assert gangs[0] != gangs[2]
    for pod in pods:
        pod.metadata.labels["scheduling.x-k8s.io/pod-group"] = "serving"
    assert len({membership.find_gang(pod) for pod in pods}) == 1
