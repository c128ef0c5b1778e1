"""Generated pods, labels and policies: every plan has an outcome, and an applied plan needs no further change."""

import copy
import json

import admitting
import exploration
import msgspec
import working
from admitting import fabric, list_messages
from hypothesis import example, given
from hypothesis import strategies as st

from railwright.fabric.injection import plan, template_plan
from railwright.fabric.nccl import derive
from railwright.fabric.workloads import registry, roles
from webhook import pods as reviewing
from webhook import response_cache, reviews

SHAPES = """nodeShapes:
- {name: a, match: {gpu: a}, devices: {rail0: mlx5_0, rail1: mlx5_1}}
- {name: b, match: {gpu: b}, devices: {rail0: mlx5_2}}
"""
UNNAMED = "[{name: rail0, resource: x.y/vf}, {name: rail1, resource: x.y/vf}]"
POLICIES = (
    fabric(top=SHAPES, rails=UNNAMED),
    fabric(
        "    resolve: always\n    preflight: {mtu: 4200}\n",
        top=SHAPES,
        rails=UNNAMED,
    ),
    fabric("    nccl: {trafficClass: 96}\n"),
    fabric("    resolve: auto\n", rails="[{name: rail0, resource: x.y/vf}]"),
    fabric(transport="erdma", top=SHAPES, rails=UNNAMED),
    fabric(transport="efa", rails="[{name: rail0, resource: x.y/vf}]"),
    fabric("    env: {NCCL_SOCKET_IFNAME: eth0}\n", transport="tcp", rails=""),
    fabric(
        "    mounts: {devInfiniband: true}\n    security: {privileged: true, capabilities: [IPC_LOCK]}\n",
        transport="pvrdma",
        rails="[{name: rail0, device: vmw0}]",
    ),
    fabric(
        "    namespaces: {kubernetes.io/metadata.name: prod}\n    nccl: {derive: false}\n"
        "    env: {A: b, NCCL_X: ' #= '}\n",
        rails="[{name: rail0, network: prod/vf, resource: x.y/shared}]",
    ),
    fabric(
        "    annotations: {x/y: z}\n    devicesPerRail: 2\n    railsPerPod: proportional\n    gpusPerNode: 4\n",
        rails="[{name: rail0, network: prod/vf.a, interface: r0}, {name: rail1, network: prod/vf.a, interface: r1}]",
    ),
    fabric(
        "    hostNetwork: true\n    resources: {hugepages-2Mi: 2Mi}\n"
        "    mounts: {hostPaths: {/etc: /etc}, configMaps: {/dev/shm: n}}\n"
        "    deviceScope: pod\n    libraryPath: [/v]\n"
        "    sourceScript: /v/e.sh\n",
        rails=UNNAMED,
    ),
    fabric(
        "    gpusPerNode: 8\n    railsPerPod: proportional\n    resolve: always\n    preflight: {image: i}\n"
        "    claims: {deviceClass: dranet, acceleratorClass: gpu.nvidia.com}\n",
        transport="efa",
        rails="[{name: rail0, device: rdmap16s27}, {name: rail1, device: rdmap32s27}]",
    ),
)
FACTS = tuple(
    admitting.build_facts(namespace_labels=labels, networks=networks, offered=offered, file_keys=offered is not None)
    for labels in (None, {}, {"pod-security.kubernetes.io/enforce": "restricted"}, {"railwright.io/fabric": "default"})
    for networks in (None, {("prod", "vf"): "x.y/vf", ("prod", "lan2"): None, ("prod", "vf.a"): "x.y/vf"})
    for offered in (None, {"x.y/vf": frozenset({1})})
)

words = st.text(max_size=12)
quantities = st.one_of(
    st.sampled_from(["0", "0.0", "1", "8", "500m", "2Gi", "1e400000", "-1", "", "many"]), st.integers(), st.floats()
)
resources = st.dictionaries(st.sampled_from(["nvidia.com/gpu", "x.y/vf", "x.y/shared", "cpu"]), quantities, max_size=3)
uses = st.none() | st.lists(
    st.sampled_from([{"name": "railwright"}, {"name": "railwright-2"}, {"name": "mine"}]), max_size=2
)
own_names = st.one_of(
    words,
    st.sampled_from(
        [
            "NCCL_IB_HCA",
            "NCCL_DEBUG",
            "NCCL_NET",
            "MPI_HOST",
            "RAY_JOB_SUBMISSION_ID",
            "PRTE_MCA_prte_if_exclude",
            "OMPI_MCA_pml",
            "NVSHMEM_DEBUG",
            "NVSHMEM_HCA_LIST",
            "UCX_TLS",
            *derive.FOUND,
        ]
    ),
)
entries = st.fixed_dictionaries(
    {"name": own_names}, optional={"value": words, "valueFrom": st.just({"secretKeyRef": {"name": "s"}})}
)
mounts = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["ssh-auth", "j-ssh", "railwright-shm", "railwright-nccl-conf"]),
        "mountPath": st.sampled_from(["/root/.ssh", "/dev/shm", "/etc/nccl.conf", "/etc/", "/dev/infiniband", "", "/"]),
    }
)
contexts = st.fixed_dictionaries(
    {},
    optional={
        "privileged": st.booleans(),
        "allowPrivilegeEscalation": st.booleans(),
        "capabilities": st.none()
        | st.fixed_dictionaries(
            {}, optional={"add": st.none() | st.lists(st.sampled_from(["ALL", "X"])), "drop": st.just(["CAP_IPC_LOCK"])}
        ),
    },
)
containers = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b", "istio-proxy", ""])},
    optional={
        "env": st.none() | st.lists(entries, max_size=3),
        "envFrom": st.sampled_from([None, [], [{"secretRef": {"name": "s"}}]]),
        "resources": st.none()
        | st.fixed_dictionaries(
            {}, optional={key: st.none() | resources for key in ("requests", "limits")} | {"claims": uses}
        ),
        "volumeMounts": st.none() | st.lists(mounts, max_size=2),
        "securityContext": st.none() | contexts,
        "command": st.sampled_from([None, [], ["train", "--fast"]]),
    },
)
volumes = st.one_of(
    st.builds(lambda name: {"name": name, "secret": {"secretName": "s"}}, st.sampled_from(["ssh-auth", "j-ssh"])),
    st.sampled_from([{"name": "railwright-shm", "emptyDir": {}}, {"name": "railwright-nccl-conf", "hostPath": {}}]),
)
KEYS = ("rails", "containers", "skip", "delivery", "injection", "nccl.conf")
values = st.one_of(
    words, st.sampled_from(["1", "2", "rail0", "rail0-rail1", "a", "a,b", "env", "file", "networks", "devices"])
)
annotations = st.builds(
    lambda ours, networks: {**ours, **networks},
    st.dictionaries(st.sampled_from([f"railwright.io/{key}" for key in KEYS]), values, max_size=2),
    st.dictionaries(
        st.just("k8s.v1.cni.cncf.io/networks"),
        st.one_of(
            words,
            st.sampled_from(
                [
                    "vf",
                    "vf,vf@r",
                    '[{"name":"vf.a","x":1}]',
                    "[]",
                    "vf@net2",
                    '[{"name": "vf"}]',
                    '["',
                    "prod/lan2@net1",
                    " ",
                ]
            ),
        ),
    ),
)
labels = st.fixed_dictionaries(
    {"railwright.io/fabric": st.sampled_from(["f"] * 8 + ["default", "none", "", "g"])},
    optional={
        "training.kubeflow.org/operator-name": st.sampled_from(["mpi-operator", "x"]),
        "training.kubeflow.org/job-role": st.sampled_from(["launcher", "worker"]),
        "mpi-job-role": st.just("launcher"),
        "volcano.sh/job-name": st.just("j"),
        "volcano.sh/task-spec": st.sampled_from(["t", "u", "v"]),
        "ray.io/node-type": st.sampled_from(["head", "worker", "redis-cleanup"]),
        "jobset.sigs.k8s.io/replicatedjob-name": st.sampled_from(["launcher", "node", "model-initializer"]),
    },
)
expressions = st.fixed_dictionaries(
    {
        "key": st.sampled_from(["gpu", "zone"]),
        "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt"]),
    },
    optional={"values": st.lists(st.sampled_from(["a", "b"]), max_size=2)},
)
affinities = st.lists(
    st.builds(lambda terms: {"matchExpressions": terms}, st.lists(expressions, max_size=2)), max_size=2
)
OURS = {"name": "railwright-preflight", "command": ["railwright", "preflight", "--transport", "roce"]}
OF_TEMPLATE = [  # names of templates that railwright wrote under another policy
    {"name": name, "resourceClaimTemplateName": f"railwright-f-4x2-{digest}"}
    for name, digest in (("railwright", "0123456789"), ("railwright-2", "abcdef0123"))
]
specs = st.fixed_dictionaries(
    {"containers": st.lists(containers, min_size=1, max_size=2)},
    optional={
        "initContainers": st.sampled_from([None, [], [{"name": "fetch"}], [OURS], [OURS | {"command": None}]]),
        "hostNetwork": st.booleans(),
        "dnsPolicy": st.sampled_from(["ClusterFirst", "Default"]),
        "tolerations": st.sampled_from([None, [], [{"key": "gpu", "operator": "Exists"}], [{"operator": "Exists"}]]),
        "hostIPC": st.booleans(),
        "nodeSelector": st.sampled_from([{}, {"gpu": "a"}, {"gpu": "c"}]),
        "volumes": st.none() | st.lists(volumes, max_size=2),
        "resourceClaims": st.sampled_from([None, [], [{"name": "mine", "resourceClaimName": "c"}], OF_TEMPLATE]),
        "affinity": st.builds(
            lambda terms: {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            },
            affinities,
        ),
    },
)
metadata = st.fixed_dictionaries(
    {"generateName": st.just("p-"), "labels": labels}, optional={"annotations": st.none() | annotations}
)
pods = st.fixed_dictionaries({"metadata": metadata, "spec": specs})


def without_accelerator(*others: dict, **annotations: str) -> dict:
    """Return a pod that gets rails by its annotation, with containers beside the first."""
    written = {f"railwright.io/{key}": value for key, value in annotations.items()}
    metadata = {"generateName": "p-", "labels": {"railwright.io/fabric": "f"}, "annotations": written}
    return {"metadata": metadata, "spec": {"containers": [{"name": "a"}, *others]}}


@exploration.wide
@example(without_accelerator({"name": "a"}, rails="1"), POLICIES[0], FACTS[0])
@given(pods, st.sampled_from(POLICIES), st.sampled_from(FACTS))
def test_a_second_admission_of_any_pod_changes_nothing(tree, by, at):
    outcome = admitting.plan_pod(tree, by, at)
    match outcome:
        case plan.NotOptedIn():
            assert tree["metadata"]["labels"]["railwright.io/fabric"] == "none"
        case plan.Refusal():
            assert outcome.message.startswith("Pod prod/p-*: ")
        case plan.Injection():
            once = admitting.admit_pod(tree, by, at)
            again = admitting.plan_pod(once, by, at)
            assert isinstance(again, plan.Injection), again
            assert again.changes == ()
            if writable(once):
                body, cached = admitting.review(once, namespace="prod"), msgspec.structs.replace(at, version=1)
                answer = reviewing.answer_review(body, by, lambda _: cached, response_cache.ResponseCache())
                assert answer.outcome == reviews.ALLOWED
            assert (again.rails, again.role, again.containers) == (outcome.rails, outcome.role, outcome.containers)
            assert _lasting(again) <= _lasting(outcome)


def _lasting(outcome: plan.Injection) -> set[str]:
    """Return the warnings about the final pod, without those about a replaced value."""
    return {warning for warning in list_messages(outcome) if "was replaced" not in warning}


@exploration.wide
@given(pods, st.sampled_from(POLICIES), st.sampled_from(FACTS))
def test_injection_keeps_the_variables_of_any_container(tree, by, at):
    if not isinstance(admitting.plan_pod(tree, by, at), plan.Injection):
        return
    after = admitting.admit_pod(tree, by, at)["spec"]["containers"]
    extended = {"LD_LIBRARY_PATH"}  # by libraryPath
    for before, now in zip(tree["spec"]["containers"], after, strict=True):
        own = before.get("env") or []
        env_after = (now.get("env") or [])[: len(own)]
        assert [variable for variable in env_after if variable["name"] not in extended] == [
            variable for variable in own if variable["name"] not in extended
        ]
        if before.get("envFrom"):
            assert len(now.get("env") or []) == len(own)
        own_mounts = before.get("volumeMounts") or []
        assert (now.get("volumeMounts") or [])[: len(own_mounts)] == own_mounts
        for capability in ((before.get("securityContext") or {}).get("capabilities") or {}).get("add") or []:
            assert capability in now["securityContext"]["capabilities"]["add"]


ROWS = st.sampled_from(registry.INJECTED_KINDS)
LABEL = "railwright.io/fabric"
NAMES = st.sampled_from(["Worker", "Launcher", "t", "u", "launcher", "master", "model-initializer", ""])
SPECS = st.sampled_from([{}, {"plugins": {"mpi": []}}, {"plugins": {"mpi": ["--master=t"], "ssh": None}}])


def canonical(pod: dict) -> dict:
    """Return a pod without empty maps and lists, and with unordered lists sorted."""
    spec = copy.deepcopy(pod["spec"])
    spec["volumes"] = sorted(spec.get("volumes") or [], key=json.dumps)
    for container in spec["containers"]:
        container["volumeMounts"] = sorted(container.get("volumeMounts") or [], key=json.dumps)
        container["env"] = container.get("env") or []
        container["resources"] = container.get("resources") or {}
    metadata = {**pod["metadata"], "annotations": pod["metadata"].get("annotations") or {}}
    return {"metadata": metadata, "spec": spec}


def writable(tree: dict) -> bool:
    """Return True for amounts that JSON can hold (finite) and an API server can admit (not below 0)."""
    try:
        json.dumps(tree, allow_nan=False)
    except ValueError:
        return False
    return not any(
        str(amount).startswith("-")
        for container in tree["spec"]["containers"]
        for amounts in (container.get("resources") or {}).values()
        if isinstance(amounts, dict)
        for amount in amounts.values()
    )


RAY = working.get_kind("RayCluster.ray.io")


@exploration.wide
@example(without_accelerator(rails="1"), RAY, "Worker", {}, POLICIES[-1], FACTS[0], False)
@example(without_accelerator(containers="a"), RAY, "Worker", {}, POLICIES[-1], FACTS[0], False)
@given(pods.filter(writable), ROWS, NAMES, SPECS, st.sampled_from(POLICIES), st.sampled_from(FACTS), st.booleans())
def test_a_pod_gets_the_same_content_whether_or_not_its_template_was_changed_first(
    tree, row, name, spec, by, at, above
):
    label = tree["metadata"]["labels"].pop(LABEL) if above else None
    stored = working.build_workload(
        row, {"metadata": tree["metadata"], "spec": tree["spec"]}, name=name, label=label, **spec
    )
    planned = working.plan_templates(row, stored, by, at)
    if any(isinstance(outcome, plan.Refusal) for outcome in planned):
        refused = next(outcome for outcome in planned if isinstance(outcome, plan.Refusal))
        fates = [
            plan.plan_pod(template_plan.build_pod(template), by, at) for template in working.read(row, stored).templates
        ]
        assert refused.reason in {fate.reason for fate in fates if isinstance(fate, plan.Refusal)}
        return
    after = working.apply_patch(row, stored, by, at)
    assert working.apply_patch(row, after, by, at) == after, "a second pass changes nothing"
    for before, now in zip(working.read(row, stored).templates, working.read(row, after).templates, strict=True):
        labelled = working.build_pod(before, stored)
        if label is not None:
            labelled["metadata"]["labels"].setdefault(LABEL, label)
        pod = working.build_pod(now, after)
        outcome = admitting.plan_pod(pod, by, at)
        if isinstance(outcome, plan.NotOptedIn | plan.Refusal):  # "none", or what may have passed
            assert type(outcome) is type(admitting.plan_pod(labelled, by, at))
            continue
        # Quotas count nothing more. The limit of 0 by which schedulers call the extender is no amount.
        assert not [
            change
            for change in outcome.changes
            if change.entry == "devices"
            or change.entry.startswith("mounts.")
            or any(
                "/resources/" in operation["path"] and operation.get("value") not in ({}, "0")
                for operation in change.operations
            )
        ]
        # Only the workload shows whether its job has accelerators, which decides whether a launcher is a rank. Its pods
        # learn it from the devices and mounts of an equipped template.
        accelerated = not before.requested.isdisjoint(by.document.accelerators)
        is_equipped = roles.has_launcher_name(template_plan.build_pod(before)) and now.pod.spec != before.pod.spec
        with_job = msgspec.structs.replace(at, job_accelerated=accelerated) if is_equipped else at
        assert canonical(admitting.admit_pod(pod, by, at)) == canonical(admitting.admit_pod(labelled, by, with_job))
