"""The plan of an excerpt is the plan of the whole pod for any values of its fields."""

import functools
import json

import admitting
import exploration
import msgspec
import pytest
import yaml
from admitting import fabric

from railwright.fabric import names, views
from railwright.fabric.lint import commands
from railwright.fabric.nccl import derive
from railwright.fabric.workloads import registry, roles
from webhook import pods, response_cache, reviews

RICH = yaml.safe_load("""
metadata:
  name: llm-worker-3
  generateName: llm-worker-
  namespace: prod
  uid: u
  labels: {railwright.io/fabric: f, volcano.sh/job-name: llm, volcano.sh/task-spec: w, app: llm}
  annotations: {k8s.v1.cni.cncf.io/networks: lan2, scheduling.k8s.io/group-name: llm-u, note: x, a.b/networks: "[]"}
  ownerReferences: [{apiVersion: v1, kind: Job, name: llm, uid: u, controller: true}]
spec:
  containers:
  - name: trainer
    image: registry.example/train:1
    command: [/bin/bash, -c, torchrun --nnodes=8 train.py]
    args: [--out, /data]
    env:
    - {name: MASTER_ADDR, value: llm-0.llm}
    - {name: NCCL_DEBUG, value: WARN}
    - {name: LD_LIBRARY_PATH, value: /opt/lib}
    - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    envFrom: [{prefix: P_, secretRef: {name: s}}]
    resources: {requests: &amounts {nvidia.com/gpu: "8", cpu: "96", memory: 1Ti}, limits: *amounts}
    volumeMounts:
    - {name: llm-svc, mountPath: /etc/volcano}
    - {name: d, mountPath: /d}
    - &token {name: kube-api-access-x, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}
    volumeDevices: [{name: block, devicePath: /dev/xvda}]
    securityContext: {runAsUser: 0, capabilities: {add: [SYS_PTRACE], drop: [NET_RAW]}}
  - {name: metrics, image: exporter:1, env: [{name: JOB, value: llm}], volumeMounts: [*token]}
  initContainers:
  - {name: fetch, image: i, command: [fetch, llm], restartPolicy: Always, resources: {}}
  volumes:
  - {name: llm-svc, configMap: {name: llm-svc}}
  - {name: d, persistentVolumeClaim: {claimName: data}}
  - {name: kube-api-access-x, projected: {}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Gi}}
  - {name: host, hostPath: {path: /opt}}
  nodeSelector: {gpu: a}
  tolerations: [{key: gpu, operator: Exists, effect: NoSchedule}]
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms: [{matchExpressions: [{key: gpu, operator: In, values: [b]}]}]
  securityContext: {runAsUser: 0, runAsNonRoot: false}
  os: {name: linux}
  hostNetwork: false
  hostIPC: false
  hostUsers: true
  dnsPolicy: ClusterFirst
  schedulerName: volcano
  priority: 3
  preemptionPolicy: Never
  schedulingGroup: {podGroupName: g}
  overhead: {cpu: "1"}
  resourceClaims: [{name: mine, resourceClaimTemplateName: t}]
""")
RICH_TEXT = json.dumps(RICH)  # to copy it: faster than copy.deepcopy
SHAPES = "nodeShapes:\n- {name: a, match: {gpu: a}, devices: {rail0: mlx5_0, rail1: mlx5_1}}\n"
POLICIES = {
    "everything": fabric(
        "    mounts: {sharedMemory: 64Gi, devInfiniband: true}\n    security: {capabilities: [IPC_LOCK]}\n"
        "    env: {NCCL_IB_SL: '1', MASTER_ADDR: a}\n    resolve: always\n"
        "    annotations: {note: y}\n",
        top=SHAPES,
    ),
    "plain": fabric(),
    "claims": admitting.read_policy(
        "apiVersion: railwright.io/v1alpha1\nfabrics:\n  f:\n    transport: roce\n"
        "    gpusPerNode: 8\n    claims: {deviceClass: mrdma.google.com, acceleratorClass: gpu.nvidia.com, "
        "pairBy: none}\n    rails: [{name: rail0, device: mlx5_0}, {name: rail1, device: mlx5_1}]\n"
    ),
    "pod": fabric(
        "    hostNetwork: true\n"
        "    mounts: {hostPaths: {/opt: /opt}, configMaps: {/etc/volcano: llm-svc}}\n"
        "    resources: {hugepages-2Mi: 4Gi}\n",
        rails="[{name: rail0, device: mlx5_0}]",
    ),
    "vendor": fabric(
        "    annotations: {a.b/networks: '[{name: eth1}]'}\n"
        "    libraryPath: [/v]\n    deviceScope: pod\n"
        "    nccl: {vendorVariables: [NCCL_DEBUG, FI_*]}\n    sourceScript: /v/e.sh\n",
        rails="[{name: rail0, interface: eth1, resource: a.b/c}, {name: rail1, interface: eth2, resource: a.b/c}]",
    ),
    "warn": fabric(top="mode: warn\n"),
}
KNOWN = admitting.build_facts(networks={("prod", "lan2"): "nvidia.com/mlx5_0", ("prod", "lan3"): None}, version=1)
# Names that a rule of injection, lint or a framework looks for, wherever they may stand.
WORDS = sorted(
    {value for value in vars(names).values() if isinstance(value, str) and len(value) > 1}
    | {f"{hint}X" for hint in commands.HINTS}
    | {label for row in registry.FRAMEWORKS for label in (*row.roles, *row.role_labels, *row.ssh_worker)}
    | {value for row in registry.FRAMEWORKS for values in row.roles.values() for value in values}
    | roles.VARIABLES
    | {"mpi-operator", "training.kubeflow.org/operator-name", "jobset.sigs.k8s.io/jobset-name", "llm-ssh", "ssh-auth"}
    | {"ray job submit", "ray start --head", "mpirun -x NCCL_IB_HCA=mlx5 -x NCCL_NET", "echo $NCCL_TYPO", "", "0", "8"}
    | {"NCCL_IB_HCA", "NCCL_TYPO", "UCX_NET_DEVICES", "OMPI_MCA_btl_tcp_if_exclude", "/dev", "/etc", "/etc/nccl.conf"}
    | {"/root/.ssh", "/dev/infiniband/", "railwright.io/rail", "railwrite.io/fabric", "azhpc", "IPC_LOCK"}
    | {"networking.gke.io/interfaces", "ALL", "a", "b", "t", "u", "node", "worker", "launcher", "x@y", '[{"name":"n"}]'}
)
# One in so many is tried in each place with each policy: as a rule one word, and two of the other values.
_SHARE, _FEW = exploration.choose(len(WORDS), 16), exploration.choose(4, 1)
VALUES = (None, True, False, 0, -1, 1000, [], {})


def list_places(tree, path=()):
    """Yield the path of each value, and of each key of a map that users fill, as (path, is_key)."""
    for step, value in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield (*path, step), False
        if path and path[-1] in {"labels", "annotations", "nodeSelector", "requests", "limits"}:
            yield (*path, step), True
        if isinstance(value, dict | list):
            yield from list_places(value, (*path, step))


def change(path, is_key, value):
    """Return the pod with another value or key at a path."""
    tree = json.loads(RICH_TEXT)
    parent = functools.reduce(lambda part, step: part[step], path[:-1], tree)
    if is_key:
        parent[value] = parent.pop(path[-1])
    else:
        parent[path[-1]] = value
    return tree


def answer(tree, by, cache=None, known=KNOWN):
    return pods.answer_review(admitting.review(tree, namespace="prod"), by, lambda _: known, cache)


PLACES = list(list_places(RICH))


@pytest.mark.examples
@pytest.mark.parametrize("name", POLICIES)
def test_the_answer_from_an_excerpt_equals_that_from_the_whole_pod_after_a_change_of_any_field(name):
    """Each string becomes some of WORDS, each other value some of VALUES; which ones depends on the policy."""
    by, turn = POLICIES[name], list(POLICIES).index(name)
    for number, (path, is_key) in enumerate(PLACES):
        old = functools.reduce(lambda part, step: part[step], path, RICH)
        words = WORDS[(number + 5 * turn) % _SHARE :: _SHARE]
        values = VALUES[(number + turn) % _FEW :: _FEW]
        for value in words if is_key or isinstance(old, str) else values:
            tree = change(path, is_key, value)
            try:
                expected = answer(tree, by)
            except reviews.MalformedError:  # a value of the wrong type
                continue
            assert answer(tree, by, response_cache.ResponseCache()) == expected, (path, value)


@pytest.mark.parametrize(
    ("view", "tree", "unused"),
    [
        (views.PodSpec, RICH["spec"], {"nodeName", "resources"}),
        (views.Container, RICH["spec"]["containers"][0], {"restartPolicy"}),
        (views.ObjectMeta, RICH["metadata"], {"resourceVersion", "creationTimestamp", "deletionTimestamp"}),
    ],
)
def test_the_pod_of_these_tests_has_every_field_that_admission_decodes(view, tree, unused):
    assert {field.encode_name for field in msgspec.structs.fields(view)} - tree.keys() == unused


def test_the_answer_from_an_excerpt_equals_that_from_the_whole_pod_if_the_pod_sets_a_derived_variable():
    by = fabric("    resolve: auto\n    env: {NCCL_CROSS_NIC: '0'}\n", rails="[{name: rail0, resource: a.b/c}]")
    at = msgspec.structs.replace(KNOWN, file_keys=True, offered=frozenset({"a.b/c"}))
    for name in sorted(derive.NAMES):
        tree = change(("spec", "containers", 0, "env", 1, "name"), is_key=False, value=name)
        del tree["spec"]["containers"][0]["envFrom"]
        assert answer(tree, by, response_cache.ResponseCache(), at) == answer(tree, by, known=at), name
        again = answer(admitting.admit_pod(tree, by, at), by, response_cache.ResponseCache(), at)
        assert again.outcome == reviews.ALLOWED, name


def of_job(job: str) -> dict:
    """Return the equal pod of another job."""
    tree = json.loads(RICH_TEXT.replace("llm", job))
    tree["spec"]["containers"][0]["command"][-1] = f"torchrun --rdzv-id={job} train.py"
    tree["spec"] |= {"priority": len(job), "schedulingGroup": {"podGroupName": job}}
    return tree


def test_equal_pods_of_several_jobs_share_one_cached_response():
    cache = response_cache.ResponseCache()
    answers = [answer(of_job(job), POLICIES["plain"], cache).body for job in ("llm", "vision", "speech")]
    assert len(cache) == 1
    assert len(set(answers)) == 1
