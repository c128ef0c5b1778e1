"""Labels, annotations, object names and paths that railwright reads or writes."""

# --- railwright's keys that users and operators set ---------------------------------------------------
DOMAIN = "railwright.io"
DOCS = f"https://{DOMAIN}/docs"  # pages are docs/<page>.md, with their anchors
FABRIC = f"{DOMAIN}/fabric"  # label on pods, namespaces and workloads: opt in
UNINJECTED = f"{DOMAIN}/uninjected"  # label on namespaces, `warn`: only the API server reads it (admission-policy.yaml)
RAILS = f"{DOMAIN}/rails"  # annotation: requests fewer rails than the fabric has
CONTAINERS = f"{DOMAIN}/containers"  # annotation: target containers
SKIP = f"{DOMAIN}/skip"  # annotation: mutations to skip
DELIVERY = f"{DOMAIN}/delivery"  # annotation: env | file

# --- railwright's keys that only railwright sets ------------------------------------------------------
INJECTION = f"{DOMAIN}/injection"  # annotation: the injection record (docs/interface.md 5)
PLACEMENT = f"{DOMAIN}/placement"  # annotation: node, rails and domains of the pod
NCCL_CONF = f"{DOMAIN}/nccl.conf"  # annotation: NAME=VALUE lines that are delivered as a file

FABRIC_DEFAULT = "default"  # label value: the policy's defaultFabric
FABRIC_NONE = "none"  # label value: opt out, even where the namespace opts in

VOLUME_PREFIX = "railwright-"  # names of volumes that railwright adds to a pod

PROXIED_AUTHORIZATION = "X-Railwright-Authorization"  # header: a bearer token that passes the API server's proxy, which
# removes the Authorization header (k8s.io/apiserver, endpoints/filters/authentication.go)

# --- objects of the installation ----------------------------------------------------------------------
NAMESPACE = "railwright-system"
EXTENDER_SERVICE, EXTENDER_PORT = "railwright-extender", 8713
POLICY_CONFIGMAP = "railwright-policy"
POLICY_KEY = "policy.yaml"
POLICY_API_VERSION = f"{DOMAIN}/v1alpha1"
POLICY_KIND = "FabricPolicy"

# --- Multus (Network Plumbing Working Group) ----------------------------------------------------------
NETWORKS = "k8s.v1.cni.cncf.io/networks"
DEFAULT_NETWORK = "v1.multus-cni.io/default-network"
MULTUS_NAMESPACE = "kube-system"  # Multus's default for the namespace of a default network
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
LEADER_WORKER_SIZE = "leaderworkerset.sigs.k8s.io/size"  # annotation: number of pods of the group, with the leader
BATCH_JOB = "batch.kubernetes.io/job-name"
BATCH_INDEX = "batch.kubernetes.io/job-completion-index"
RAY_NODE_TYPE = "ray.io/node-type"
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"  # annotation: kubectl's default container; Istio sets it
POD_SECURITY_ENFORCE = "pod-security.kubernetes.io/enforce"  # label on a namespace

# --- containers that railwright adds -----------------------------------------------------------------------
PREFLIGHT_CONTAINER = "railwright-preflight"

# --- paths in the container ---------------------------------------------------------------------------
DEV_INFINIBAND = "/dev/infiniband"
DEV_SHM = "/dev/shm"  # noqa: S108 - the POSIX shared-memory mount NCCL uses, not a temporary file
NCCL_CONF_PATH = "/etc/nccl.conf"
SSH_HOME = "/root/.ssh"
