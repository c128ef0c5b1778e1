"""Every refusal and warning of injection: it names object, key, value and fix, and fits the API server's limits.

None has control characters, whatever the pod contains. A new message gets a row in REFUSALS or WARNINGS.
"""

import copy
import json

import admitting
import pytest
from admitting import LAUNCHER, OF_OPEN_MPI, cpu, fabric, gpus, pod

from railwright.fabric.injection import facts
from webhook import pods, reviews

NETWORKS = "k8s.v1.cni.cncf.io/networks"
ANNOTATION = "annotation railwright.io/"
UNNAMED = "[{name: rail0}, {name: rail1}]"
NEUTRAL = "[{name: rail0, network: prod/lan2, device: mlx5_0}]"
ENV_FROM = [{"configMapRef": {"name": "settings"}}]
# What a name may be: as people name things, the longest that Kubernetes allows, and what nobody has checked yet.
SHORT = "c"
LONGEST = "c" * 63  # a DNS label: containers, fabrics, namespaces
HOSTILE = "\x1b[2J\n\u202e" + "x" * 5000
RESOURCE = ".".join(["d" * 62] * 4) + "/" + "r" * 63  # about the longest name of a resource


class Case:
    """A pod that causes one message; `words` are parts of the message."""

    def __init__(self, words: tuple[str, ...], tree: dict | None = None, by=None, **known) -> None:
        self.words, self.tree, self.by = words, tree or pod(), by or fabric()
        known = {"networks": {("prod", "lan2"): None, ("prod", "lan3"): None}, **known}
        self.facts = facts.ClusterFacts(namespace=known.pop("namespace", "prod"), **known)

    def answer(self, name: str) -> dict:
        """Return the response if the pod's first container has this name."""
        tree = copy.deepcopy(self.tree)
        for container in tree["spec"]["containers"][:1]:
            container["name"] = name
        if name == HOSTILE:
            tree["metadata"]["name"] = HOSTILE
        body = admitting.review(tree, namespace=self.facts.namespace)
        return json.loads(pods.answer_review(body, self.by, lambda _: self.facts).body)["response"]


def annotate(key: str, value: str) -> dict:
    """Return a pod with one annotation of railwright."""
    return pod(annotations={f"railwright.io/{key}": value})


def enforce_level(level: str) -> dict:
    return {"namespace_labels": {"pod-security.kubernetes.io/enforce": level}}


NO_DEFAULT = admitting.read_policy(
    "apiVersion: railwright.io/v1alpha1\nfabrics: {f: {transport: infiniband, rails: [{name: r}]}}\n"
)
LIMITED = fabric("    namespaces: {team: ai}\n")
CLAIMED = fabric(
    "    gpusPerNode: 8\n    claims: {deviceClass: dranet, acceleratorClass: gpu.nvidia.com}\n",
    rails="[{name: rail0, device: mlx5_0}]",
)
POOL = {"networks": {("prod", "lan2"): "nvidia.com/mlx5_0", ("prod", "lan3"): None}}
FULL = {"note": "x" * (256 * 1024 - 10)}

REFUSALS = {
    "claims and a node by name": Case(
        ("spec.nodeName is 'n'", "claims of fabric f", "remove nodeName, and select the node by nodeSelector"),
        pod(nodeName="n"),
        by=CLAIMED,
    ),
    "claim of the author with railwright's name": Case(
        ("spec.resourceClaims[0]", "'railwright'", "which railwright gives to its own claim", "rename it"),
        pod(resourceClaims=[{"name": "railwright", "resourceClaimName": "imex"}]),
        by=CLAIMED,
    ),
    "skip": Case((ANNOTATION + "skip", "'net'", "networks, devices"), annotate("skip", "net")),
    "delivery": Case((ANNOTATION + "delivery", "'fax'", "env, file"), annotate("delivery", "fax")),
    "segment": Case(
        (ANNOTATION + "segment", "'0'", "from 1 to 999999", "correct or remove it"), annotate("segment", "0")
    ),
    "no default": Case(
        ("label railwright.io/fabric", "'default' needs the policy's defaultFabric", "name a fabric: f"),
        pod(label="default"),
        NO_DEFAULT,
    ),
    "unknown fabric without a default": Case(
        ("label railwright.io/fabric", "'rocee'", "allowed are f, none"), pod(label="rocee"), NO_DEFAULT
    ),
    "unknown fabric": Case(("label railwright.io/fabric", "'rocee'", "allowed are f"), pod(label="rocee")),
    "empty label": Case(("label railwright.io/fabric", "is empty", "allowed are f"), pod(label="")),
    "unknown fabric of the namespace": Case(
        ("label railwright.io/fabric of namespace prod", "'rocee'", "allowed are f"),
        pod(label=None),
        namespace_labels={"railwright.io/fabric": "rocee"},
    ),
    "namespace not known yet": Case(("namespace prod", "try again"), by=LIMITED, watched=True),
    "namespace does not match": Case(
        ("fabric f", "namespace prod", "fabrics.f.namespaces", "use another fabric or ask"),
        by=LIMITED,
        namespace_labels={"team": "web"},
    ),
    "annotations beyond the limit": Case(
        ("annotations are 300001 bytes", "limit is 262144", "remove some"), pod(annotations={"a": "x" * 300_000})
    ),
    "too many containers": Case(
        ("257 containers", "the limit is 256", ANNOTATION + "containers", "name those"),
        pod(*[gpus(1, f"c{number}") for number in range(257)]),
    ),
    "networks": Case(
        (f"annotation {NETWORKS}", "'a,,b'", "remove the extra comma"), pod(annotations={NETWORKS: "a,,b"})
    ),
    "missing network": Case(
        ("NetworkAttachmentDefinition prod/lan2", "create it or correct `network` of rail rail0"), networks={}
    ),
    "a pool for two": Case(
        ("nvidia.com/mlx5_0", "2 containers", "name one in annotation railwright.io/containers"),
        pod(gpus(8), gpus(8, "other")),
        **POOL,
    ),
    "a pool of the user's network for two": Case(
        ("x.y/vf", "need 1 more of x.y/vf", "2 containers", "add 1 to the request of the container"),
        pod(gpus(8), gpus(8, "other"), annotations={NETWORKS: "own"}),
        networks={("prod", "lan2"): None, ("prod", "lan3"): None, ("prod", "own"): "x.y/vf"},
    ),
    "quantity": Case(
        ("resource nvidia.com/gpu", "container "),
        pod({"name": "c", "resources": {"limits": {"nvidia.com/gpu": "many"}}}),
    ),
    "GPUs of a claim": Case(
        ("requests 1025 nvidia.com/gpu, more than", "fabric f", "request at most 1024"), pod(gpus(1025)), CLAIMED
    ),
    "preflight's name": Case(
        ("railwright-preflight", "rename it", "railwright.io/skip"),
        pod(initContainers=[{"name": "railwright-preflight", "image": "own"}]),
        fabric("    resolve: always\n"),
    ),
    "rails count": Case((ANNOTATION + "rails", "'9'", "1 to 2"), annotate("rails", "9")),
    "rails empty": Case(
        (ANNOTATION + "rails", "is empty", "rail0, rail1", "or remove the annotation to get all"),
        annotate("rails", " "),
    ),
    "rails reversed": Case((ANNOTATION + "rails", "'rail1-rail0'", "reversed"), annotate("rails", "rail1-rail0")),
    "rails unknown": Case((ANNOTATION + "rails", "'rail7'", "rail0, rail1"), annotate("rails", "rail7")),
    "no containers": Case(("spec.containers is empty", "needs a container"), pod() | {"spec": {"containers": []}}),
    "containers unknown": Case((ANNOTATION + "containers", "'b'", "it has "), annotate("containers", "b")),
    "volume": Case(
        ("volume named railwright-shm", "rename it in spec.volumes"),
        pod(volumes=[{"name": "railwright-shm", "hostPath": {"path": "/"}}]),
        fabric("    mounts: {sharedMemory: 1Gi}\n"),
    ),
    "the only way is a host path": Case(
        ("level baseline", "/dev/infiniband", "fabric f", "run the pod in a privileged namespace or name"),
        by=fabric("    mounts: {devInfiniband: true}\n", rails=UNNAMED),
        **enforce_level("baseline"),
    ),
    "directories of the node that the fabric needs": Case(
        ("level baseline", "hostPath", "fabric f needs /opt/vendor", "run the pod in a privileged namespace"),
        by=fabric("    mounts: {hostPaths: {/opt/vendor: /opt/vendor}}\n"),
        **enforce_level("baseline"),
    ),
    "the host network that the fabric needs": Case(
        (
            "level baseline",
            "hostNetwork",
            "fabric f works on the host network only",
            "level privileged, or use another fabric",
        ),
        by=fabric("    hostNetwork: true\n", rails=UNNAMED),
        **enforce_level("baseline"),
    ),
    "the only way is privilege": Case(
        ("level restricted", "privileged", "fabric f", "run the pod in a privileged namespace or name"),
        by=fabric("    security: {privileged: true}\n", rails=UNNAMED),
        **enforce_level("restricted"),
    ),
    "its own word against privilege": Case(
        ("securityContext.allowPrivilegeEscalation is false", "fabric f", "remove allowPrivilegeEscalation or use"),
        pod(gpus(8, securityContext={"allowPrivilegeEscalation": False})),
        fabric("    security: {privileged: true}\n"),
    ),
    "annotations": Case((NETWORKS, "262144", "remove some of the pod's own"), pod(annotations=FULL)),
}


# Of a pod of a Job whose topology was written, and that is in no PodGroup.
WARNINGS = {
    "no accelerator": Case(
        ("no container requests nvidia.com/gpu", "gets no rails", "annotation railwright.io/containers"), pod(cpu())
    ),
    "host network": Case(("spec.hostNetwork is true", "remove hostNetwork"), pod(hostNetwork=True)),
    "host network without rails": Case(
        ("spec.hostNetwork is true", "NCCL_SOCKET_IFNAME is not set", "or set NCCL_SOCKET_IFNAME in the container"),
        pod(hostNetwork=True),
        fabric(transport="tcp", rails=""),
    ),
    "default route": Case(
        (NETWORKS, "entry 1", "default-route", "remove it unless"),
        pod(annotations={NETWORKS: '[{"name": "lan2", "namespace": "prod", "default-route": ["10.0.0.1"]}]'}),
    ),
    "a network of the user's that is not there": Case(
        (NETWORKS, "of entry 1 does not exist, and the pod's sandbox", "create it or correct the entry"),
        pod(annotations={NETWORKS: json.dumps([{"name": LONGEST * 3, "namespace": LONGEST}])}),
    ),
    "GPUs of several containers": Case(
        (
            "containers that use one claim share",
            "claims of fabric f have no GPUs",
            "request all GPUs in one container",
            ANNOTATION + "containers",
        ),
        pod(gpus(4), gpus(4, "other")),
        CLAIMED,
    ),
    "GPUs of an init container that are not those of the claims": Case(
        ("claims of fabric f have no GPUs", "init container diagnose requests GPUs of its own", "request none there"),
        pod(gpus(4), initContainers=[gpus(8, "diagnose")]),
        CLAIMED,
    ),
    "no node offers it": Case(
        ("no node offers ddd", "needed by rail0", "ask the operator to check the device plugin and `resource` of"),
        by=fabric(rails=f"[{{name: rail0, resource: {RESOURCE}, device: mlx5_0}}]"),
        offered=frozenset(),
    ),
    "no node offers what the user's network draws on": Case(
        (
            "no node offers x.y/vf",
            "needed by network prod/",
            f"correct annotation {NETWORKS}, or ask the operator for the network's device",
        ),
        pod(annotations={NETWORKS: LONGEST}),
        networks={("prod", "lan2"): None, ("prod", "lan3"): None, ("prod", LONGEST): "x.y/vf"},
        offered=frozenset(("nvidia.com/mlx5_0", "nvidia.com/mlx5_1")),
    ),
    "capability": Case(
        ("level restricted", "IPC_LOCK: it is left out", "run the pod in a privileged namespace"),
        by=fabric("    security: {capabilities: [IPC_LOCK]}\n"),
        namespace=LONGEST,
        **enforce_level("restricted"),
    ),
    "a capability that is dropped": Case(
        ("remove IPC_LOCK from securityContext.capabilities.drop", "drops IPC_LOCK by name"),
        pod(gpus(8, securityContext={"capabilities": {"drop": ["IPC_LOCK"]}})),
        fabric("    security: {capabilities: [IPC_LOCK]}\n"),
    ),
    "a capability in a user namespace": Case(
        ("spec.hostUsers is false: IPC_LOCK has no effect", "remove hostUsers, or ask the operator for LimitMEMLOCK"),
        pod(hostUsers=False),
        fabric("    security: {capabilities: [IPC_LOCK]}\n"),
    ),
    "a capability of another user than root": Case(
        ("does not run as root: IPC_LOCK has no effect", "run it as root, or ask the operator for LimitMEMLOCK"),
        pod(gpus(8, securityContext={"runAsNonRoot": True})),
        fabric("    security: {capabilities: [IPC_LOCK]}\n"),
    ),
    "huge pages without memory": Case(
        ("requests neither cpu nor memory", "hugepages-2Mi", "request one of them"),
        by=fabric("    resources: {hugepages-2Mi: 2Mi}\n", rails=NEUTRAL),
    ),
    "script without a command": Case(
        ("has no command", "/v/env.sh is not sourced", "write the command of its image"),
        by=fabric("    sourceScript: /v/env.sh\n", rails=NEUTRAL),
    ),
    "library path from elsewhere": Case(
        ("LD_LIBRARY_PATH from envFrom", "add /a to the value in envFrom"),
        pod(gpus(8, envFrom=ENV_FROM)),
        by=fabric("    libraryPath: [/a]\n    nccl: {derive: false}\n", rails=NEUTRAL),
    ),
    "privilege": Case(
        ("level baseline", "privileged: it is left out", "run the pod in a privileged namespace"),
        by=fabric("    security: {privileged: true}\n"),
        namespace=LONGEST,
        **enforce_level("baseline"),
    ),
    "host path": Case(
        ("level baseline", "/dev/infiniband: it is left out", "run the pod in a privileged namespace"),
        by=fabric("    mounts: {devInfiniband: true}\n"),
        namespace=LONGEST,
        **enforce_level("baseline"),
    ),
    "env from": Case(
        ("has envFrom", "GLOO_SOCKET_IFNAME", "write what the job needs in env, or in the source of envFrom"),
        pod(gpus(8, envFrom=ENV_FROM)),
    ),
    "launcher and env from": Case(
        ("has envFrom", "OMPI_", "write what the job needs in env, or in the source of envFrom"),
        pod(cpu(envFrom=ENV_FROM), labels=LAUNCHER),
        fabric(OF_OPEN_MPI),
    ),
    "forged file": Case(
        ("railwright.io/nccl.conf", "was replaced", "remove it"), annotate("nccl.conf", "NCCL_DEBUG=TRACE\n")
    ),
    "a file of its own": Case(
        ("mounts /etc/nccl.conf itself", "remove that mount, or set the NCCL settings"),
        pod(
            gpus(8, volumeMounts=[{"name": "own", "mountPath": "/etc/nccl.conf"}]),
            volumes=[{"name": "own"}],
            annotations={"railwright.io/delivery": "file"},
        ),
        fabric(""),
    ),
    "no room for the record": Case(
        ("railwright.io/injection is left out", "shorten some"), pod(annotations={"note": "x" * (256 * 1024 - 150)})
    ),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_names_the_pod_the_key_the_value_and_the_fix(case):
    for name in (SHORT, LONGEST, HOSTILE):
        response = case.answer(name)
        assert not response["allowed"]
        message = response["status"]["message"]
        assert message.isprintable()
        assert len(message) <= 4096
        if name != HOSTILE:
            assert message.startswith("Pod prod/p: ")
            assert all(word in message for word in case.words), message


@pytest.mark.parametrize("case", WARNINGS.values(), ids=WARNINGS)
def test_a_warning_names_the_key_the_cause_and_the_fix_within_the_length_limit(case):
    for name in (SHORT, LONGEST, HOSTILE):
        response = case.answer(name)
        assert response["allowed"], response["status"]["message"]
        warnings = response["warnings"]
        assert all(warning.isprintable() and len(warning) <= reviews.MAX_WARNING for warning in warnings)
        if name != HOSTILE:  # such a name never gets past the API server; the others do
            assert any(all(word in warning for word in case.words) for warning in warnings), warnings
