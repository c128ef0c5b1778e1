"""Recognizes sidecars: proxies and agents that other webhooks add to a pod, often as its first container.

The names are those of the projects. Native sidecars are init containers and need no entry.
"""

from railwright.fabric import views

NAMES = frozenset(
    {
        # service meshes
        "istio-proxy",  # Istio; first under holdApplicationUntilProxyStarts
        "linkerd-proxy",  # Linkerd; first since 2.11 (linkerd2 issue 7122)
        "linkerd-debug",
        "kuma-sidecar",  # Kuma and Kong Mesh
        "consul-dataplane",  # Consul
        "envoy-sidecar",  # Consul before 1.14
        "envoy",  # AWS App Mesh, Open Service Mesh
        "nginx-mesh-sidecar",  # NGINX Service Mesh
        "daprd",  # Dapr
        "queue-proxy",  # Knative
        # secrets, identities and databases
        "vault-agent",  # Vault Agent Injector
        "azwi-proxy",  # Azure Workload Identity
        "cloud-sql-proxy",  # the name in Google's examples
        "cloudsql-proxy",
        "alloydb-auth-proxy",
        # storage
        "gke-gcsfuse-sidecar",  # Cloud Storage FUSE on GKE; first
        "jfs-mount",  # JuiceFS; first
        # telemetry
        "otc-container",  # OpenTelemetry Operator
    }
)
_PREFIXES = (
    "consul-dataplane-",  # with the service's name, in a pod of several services
    "csql-",  # Cloud SQL Proxy Operator; with namespace and name
    "fluid-fuse-",  # Fluid; with a number; first
    "jfs-mount-",  # JuiceFS; with a number, in a pod of several volumes
)


def is_sidecar(container: views.Container) -> bool:
    """True for a container with the name of a known proxy or agent."""
    return container.name in NAMES or container.name.startswith(_PREFIXES)
