"""Every label, annotation, object name and path that railwright reads or writes, and whose it is.

Owns the spelling and nothing else: no parsing, no defaults, no meaning beyond the comment beside a name.
"""

# --- ours: what users and operators write -------------------------------------------------------------
DOMAIN = "railwright.io"
DOCS = f"https://{DOMAIN}/docs"  # pages are docs/<page>.md, with their anchors
FABRIC = f"{DOMAIN}/fabric"  # label on pods, namespaces and workloads: opt in
UNINJECTED = f"{DOMAIN}/uninjected"  # label on namespaces, `warn`: read by the API server only (admission-policy.yaml)
RAILS = f"{DOMAIN}/rails"  # annotation: fewer rails than the fabric has
CONTAINERS = f"{DOMAIN}/containers"  # annotation: which containers get the fabric
SKIP = f"{DOMAIN}/skip"  # annotation: concerns to leave out
DELIVERY = f"{DOMAIN}/delivery"  # annotation: env | file

# --- ours: what only we write -------------------------------------------------------------------------
INJECTION = f"{DOMAIN}/injection"  # annotation: the record of CONTRACT section 5
PLACEMENT = f"{DOMAIN}/placement"  # annotation: where the pod landed on the fabric
NCCL_CONF = f"{DOMAIN}/nccl.conf"  # annotation: NAME=VALUE lines delivered as a file

FABRIC_DEFAULT = "default"  # label value: the policy's defaultFabric
FABRIC_NONE = "none"  # label value: opt out, even where the namespace opts in

VOLUME_PREFIX = "railwright-"  # of the volumes we add to a pod

PROXIED_AUTHORIZATION = "X-Railwright-Authorization"  # header: a bearer token by way of the API server's proxy, which
# takes the standard one for itself (k8s.io/apiserver, endpoints/filters/authentication.go)

# --- where the policy lives ---------------------------------------------------------------------------
NAMESPACE = "railwright-system"
EXTENDER_SERVICE, EXTENDER_PORT = "railwright-extender", 8713
POLICY_CONFIGMAP = "railwright-policy"
POLICY_KEY = "policy.yaml"
POLICY_API_VERSION = f"{DOMAIN}/v1alpha1"
POLICY_KIND = "FabricPolicy"

# --- Multus (Network Plumbing Working Group) ----------------------------------------------------------
NETWORKS = "k8s.v1.cni.cncf.io/networks"
DEFAULT_NETWORK = "v1.multus-cni.io/default-network"
MULTUS_NAMESPACE = "kube-system"  # where Multus looks up a default network without a namespace, unless told otherwise
NAD_RESOURCE_NAME = "k8s.v1.cni.cncf.io/resourceName"  # on a NetworkAttachmentDefinition

# --- schedulers and workload controllers --------------------------------------------------------------
VOLCANO_GROUP = "scheduling.k8s.io/group-name"  # annotation: the pod's PodGroup
VOLCANO_JOB = "volcano.sh/job-name"
VOLCANO_TASK = "volcano.sh/task-spec"
VOLCANO_TASK_INDEX = "volcano.sh/task-index"
PLUGINS_POD_GROUP = "scheduling.x-k8s.io/pod-group"  # label: scheduler-plugins' coscheduling
KUBEFLOW_JOB = "training.kubeflow.org/job-name"
KUBEFLOW_OPERATOR = "training.kubeflow.org/operator-name"
KUBEFLOW_ROLE = "training.kubeflow.org/job-role"
KUBEFLOW_REPLICA_TYPE = "training.kubeflow.org/replica-type"
KUBEFLOW_REPLICA_INDEX = "training.kubeflow.org/replica-index"
MPI_OPERATOR_JOB = "mpi-job-name"  # mpi-operator v1
MPI_OPERATOR_ROLE = "mpi-job-role"
MPI_ALPHA_JOB = "mpi_job_name"  # mpi-operator v1alpha1 and v1alpha2
MPI_ALPHA_ROLE = "mpi_role_type"
JOBSET = "jobset.sigs.k8s.io/jobset-name"
JOBSET_REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
JOBSET_JOB_INDEX = "jobset.sigs.k8s.io/job-index"
TRAINER_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
LEADER_WORKER_SET = "leaderworkerset.sigs.k8s.io/name"
LEADER_WORKER_GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
LEADER_WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
LEADER_WORKER_SIZE = "leaderworkerset.sigs.k8s.io/size"  # annotation: pods of the group, its leader among them
BATCH_JOB = "batch.kubernetes.io/job-name"
BATCH_INDEX = "batch.kubernetes.io/job-completion-index"
RAY_NODE_TYPE = "ray.io/node-type"
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"  # annotation: the one that kubectl means; Istio sets it
POD_SECURITY_ENFORCE = "pod-security.kubernetes.io/enforce"  # label on a namespace

# --- the preflight of a pod ------------------------------------------------------------------------------
PREFLIGHT_CONTAINER = "railwright-preflight"

# --- paths in the container ---------------------------------------------------------------------------
DEV_INFINIBAND = "/dev/infiniband"
DEV_SHM = "/dev/shm"  # noqa: S108 - the POSIX shared-memory mount NCCL uses, not a temporary file
NCCL_CONF_PATH = "/etc/nccl.conf"
SSH_HOME = "/root/.ssh"
