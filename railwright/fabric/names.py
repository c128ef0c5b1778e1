"""Labels, annotations, object names and paths that railwright reads or writes."""

import hashlib

# --- railwright's keys that users and operators set ---------------------------------------------------
DOMAIN = "railwright.io"
FABRIC = f"{DOMAIN}/fabric"  # label on pods, namespaces and workloads: opt in
UNINJECTED = f"{DOMAIN}/uninjected"  # label on namespaces, `warn`: only the API server reads it (admission-policy.yaml)
RAILS = f"{DOMAIN}/rails"  # annotation: requests fewer rails than the fabric has; also written to templates
CONTAINERS = f"{DOMAIN}/containers"  # annotation: target containers
SKIP = f"{DOMAIN}/skip"  # annotation: mutations to skip
DELIVERY = f"{DOMAIN}/delivery"  # annotation: env | file
SEGMENT = f"{DOMAIN}/segment"  # annotation: number of consecutive ranks that share an NVLink domain
BROKEN_RAILS = f"{DOMAIN}/broken-rails"  # annotation on nodes: rails that pods must not use
POD_KEYS = (RAILS, CONTAINERS, SKIP, DELIVERY, SEGMENT)  # annotations that users write on pods

# --- railwright's keys that only railwright sets ------------------------------------------------------
INJECTION = f"{DOMAIN}/injection"  # annotation: the injection record (docs/interface.md 5)
TOPOLOGY = f"{DOMAIN}/topology"  # annotation of templates: the record of a gang's topology (docs/interface.md 5.2)
NCCL_CONF = f"{DOMAIN}/nccl.conf"  # annotation: NAME=VALUE lines that are delivered as a file

FABRIC_DEFAULT = "default"  # label value: the policy's defaultFabric
FABRIC_NONE = "none"  # label value: opt out, even where the namespace opts in

MANAGED_RESOURCE = f"{DOMAIN}/rails"  # resource with quantity 0: schedulers ask the extender about pods that name it

POD_CLAIM = "railwright"  # name of the entry of spec.resourceClaims that railwright adds; the second is railwright-2
CLAIM_TEMPLATE_PREFIX = "railwright-"  # of the names of its ResourceClaimTemplates
CHANNEL_CLASS = "compute-domain-default-channel.nvidia.com"  # DeviceClass of channels (NVIDIA's DRA driver)
MANAGED_BY, OWNER = "app.kubernetes.io/managed-by", "railwright"  # label of the objects that railwright writes

VOLUME_PREFIX = "railwright-"  # names of volumes that railwright adds to a pod

PROXIED_AUTHORIZATION = "X-Railwright-Authorization"  # header: a bearer token that passes the API server's proxy, which
# removes the Authorization header (k8s.io/apiserver, endpoints/filters/authentication.go)

# --- objects of the default installation; railwright.cluster.installed_names has those of this one -----
NAMESPACE = "railwright-system"
EXTENDER_SERVICE, EXTENDER_PORT = "railwright-extender", 8713
POLICY_CONFIGMAP = "railwright-policy"
POLICY_KEY = "policy.yaml"
POLICY_API_VERSION = f"{DOMAIN}/v1alpha1"

# --- Multus (Network Plumbing Working Group) ----------------------------------------------------------
NETWORKS = "k8s.v1.cni.cncf.io/networks"
DEFAULT_NETWORK = "v1.multus-cni.io/default-network"
MULTUS_NAMESPACE = "kube-system"  # Multus's default for the namespace of a default network
NAD_RESOURCE_NAME = "k8s.v1.cni.cncf.io/resourceName"  # on a NetworkAttachmentDefinition

# --- Kubernetes; keys of workload controllers are in railwright.fabric.workloads ---------------------
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"  # annotation: kubectl's default container; Istio sets it
POD_SECURITY_ENFORCE = "pod-security.kubernetes.io/enforce"  # label on a namespace

# --- containers that railwright adds -----------------------------------------------------------------------
PREFLIGHT_CONTAINER = "railwright-preflight"
IMAGE = "railwright:latest"  # where nothing names the image of a release

SOURCE_COMMAND = '. {path} && exec "$0" "$@"'  # third word of a container's command after a script is put before it

# --- paths in the container ---------------------------------------------------------------------------
DEV_INFINIBAND = "/dev/infiniband"
DEV_SHM = "/dev/shm"  # noqa: S108 - the POSIX shared-memory mount NCCL uses, not a temporary file
NCCL_CONF_PATH = "/etc/nccl.conf"
RAILS_PATH = "/run/railwright"  # what the init container finds
ROOT_HOME = "/root"
SSH_HOME = f"{ROOT_HOME}/.ssh"

# --- resources that stand for claims (Dynamic Resource Allocation) ----------------------------------------
CLAIMS_DOMAIN = f"claims.{DOMAIN}"
_MAX_NAME = 63  # characters of the name of an extended resource
_DIGEST = 8  # characters


def name_resource(fabric: str, rail: str) -> str:
    """Return the resource name under which placement counts the devices of a rail in claims.

    No pod requests it and no node reports it. Names of rails have no ".", so it is unique.
    """
    name = f"{fabric}.{rail}"
    if len(name) > _MAX_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
        name = f"{name[: _MAX_NAME - _DIGEST - 1]}-{digest}"
    return f"{CLAIMS_DOMAIN}/{name}"
