"""The shipped examples: admission turns each job with one label into its hand-written equivalent."""

import copy
import json

import admitting
import conf_reading
import jsonpatch
import msgspec
import pytest
import yaml
from admitting import EXAMPLES
from meanings import list_pods, read_meaning, read_networks, read_ranks

from railwright.cluster import policies
from railwright.fabric import names, quantity, views
from railwright.fabric.injection import facts
from railwright.fabric.workloads import membership
from webhook import pods

SITES = ("360-roce", "360-infiniband", "vivo-roce", "sriov-8-rail", "pvrdma-mpi", "ack-erdma")
TUNING = {"NCCL_ALGO"}  # a user's own, in the job with the label as in the hand-written one


def load(site: str, name: str) -> dict:
    return yaml.safe_load((EXAMPLES / site / f"{name}.yaml").read_text())


def policy_of(site: str):
    policy = policies.read((EXAMPLES / site / "policy.yaml").read_text())
    assert not isinstance(policy, policies.RejectedPolicy), policy
    return policy


def load_all(site: str, name: str) -> list[dict]:
    return list(yaml.safe_load_all((EXAMPLES / site / f"{name}.yaml").read_text()))


def admit(site: str, pod: dict, known: facts.ClusterFacts | None = None) -> dict:
    """Return the pod after admission without warnings, except those of lint about the user's own tuning."""
    body = admitting.review(pod, namespace=pod["metadata"]["namespace"])
    answer = pods.answer_review(body, policy_of(site), lambda namespace: known or facts.ClusterFacts(namespace))
    response = json.loads(answer.body)["response"]
    assert response["allowed"], response
    for warning in response.get("warnings", ()):
        assert warning.startswith("N34: "), warning
        assert "NCCL_ALGO=" in warning
    return jsonpatch.apply_patch(copy.deepcopy(pod), admitting.decode_operations(response))


@pytest.mark.parametrize("site", [site for site in SITES if site != "pvrdma-mpi"])
def test_the_injected_pods_of_the_labelled_job_equal_those_of_the_handwritten_job(site):
    given, twins = list_pods(load(site, "job")), list_pods(load(site, "handwritten"))
    for role, twin in twins.items():
        assert read_meaning(admit(site, given[role])) == read_meaning(twin)
        assert read_meaning(given[role]) != read_meaning(twin), "the job must lack what the webhook is to add"


def test_mpi_ranks_get_the_variables_of_the_handwritten_mpirun_by_file():
    site = "pvrdma-mpi"
    twins = read_ranks(list_pods(load(site, "handwritten")))
    ours = read_ranks({role: admit(site, pod) for role, pod in list_pods(load(site, "job")).items()})
    assert ours == twins
    assert ours[0] == {"NCCL_DEBUG": "INFO", "NCCL_IB_DISABLE": "0", "NCCL_NET_GDR_LEVEL": "LOC"}


@pytest.mark.parametrize(("label", "read"), [("tcp", {"NCCL_NET": "Socket"}), ("none", {})])
def test_the_mpi_job_is_switched_to_tcp_by_one_label_value(label, read):
    job = load("pvrdma-mpi", "job")
    job["metadata"]["labels"][names.FABRIC] = label
    after = {role: admit("pvrdma-mpi", pod) for role, pod in list_pods(job).items()}
    worker = after["worker"]
    assert "volumes" not in worker["spec"] or all("hostPath" not in volume for volume in worker["spec"]["volumes"])
    assert not worker["spec"]["containers"][0].get("securityContext", {}).get("privileged")
    settings = conf_reading.read(worker["metadata"].get("annotations", {}).get(names.NCCL_CONF, ""))
    assert {key: settings[key] for key in read} == read
    assert bool(settings) == bool(read)


@pytest.mark.parametrize("site", SITES)
def test_the_labelled_job_is_the_handwritten_job_without_rdma_settings_and_with_one_label(site):
    job, twin = (json.loads(json.dumps(load(site, name))) for name in ("job", "handwritten"))
    labels = [
        job["metadata"].pop("labels", {}),
        *(part.get("metadata", {}).pop("labels", {}) for part in list_templates(job)),
    ]
    (label,) = [label_or_none for label_or_none in labels if label_or_none]
    assert list(label) == [names.FABRIC]
    assert label[names.FABRIC] in policy_of(site).document.fabrics
    for template in list_templates(twin):
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
    for template in list_templates(job):
        if not template.get("metadata", {"": ""}):
            del template["metadata"]
    assert job == twin


def list_templates(job: dict) -> list[dict]:
    """Return the templates themselves, to be changed in place."""
    spec = job["spec"]
    replicas = spec.get("tasks") or (spec.get("pytorchReplicaSpecs") or spec["mpiReplicaSpecs"]).values()
    return [replica["template"] for replica in replicas]


@pytest.mark.parametrize("site", SITES)
def test_a_second_admission_of_an_example_changes_nothing(site):
    for pod in list_pods(load(site, "job")).values():
        once = admit(site, pod)
        assert admit(site, once) == once


@pytest.mark.parametrize("site", SITES)
def test_the_job_of_an_example_is_admitted_with_each_fabric_of_its_policy(site):
    known = read_networks(site)
    for name, fabric in policy_of(site).document.fabrics.items():
        resources = {rail.resource or known.get(tuple((rail.network or "/").split("/"))) for rail in fabric.rails} - {
            None
        }
        for pod in list_pods(load(site, "job")).values():
            pod["metadata"].setdefault("labels", {})[names.FABRIC] = name
            namespace = pod["metadata"]["namespace"]
            offered = frozenset({*resources, "nvidia.com/gpu"})
            (container,) = admit(site, pod, facts.ClusterFacts(namespace, {}, known, offered))["spec"]["containers"]
            if "nvidia.com/gpu" in container.get("resources", {}).get("limits", {}):
                assert resources <= set(container["resources"]["limits"])


# --- inference: prefill and decode are two sets ---------------------------------------------------------------


@pytest.mark.parametrize("part", [0, 1], ids=["prefill", "decode"])
def test_the_injected_pods_of_labelled_servers_equal_the_handwritten_pods(part):
    given, twins = (list_pods(load_all("llm-d", name)[part]) for name in ("job", "handwritten"))
    assert given.keys() == twins.keys() == {"leader", "worker"}
    for role, twin in twins.items():
        once = admit("llm-d", given[role])
        assert read_meaning(once) == read_meaning(twin)
        assert read_meaning(given[role]) != read_meaning(twin)
        assert admit("llm-d", once) == once


def test_prefill_and_decode_are_one_gang_only_with_a_common_pod_group_label():
    pods = [msgspec.convert(pod, views.Pod) for job in load_all("llm-d", "job") for pod in list_pods(job).values()]
    gangs = [membership.find_gang(pod) for pod in pods]
    assert (gangs[0], gangs[2]) == (gangs[1], gangs[3])
    assert gangs[0] != gangs[2]
    for pod in pods:
        pod.metadata.labels["scheduling.x-k8s.io/pod-group"] = "serving"
    assert len({membership.find_gang(pod) for pod in pods}) == 1
