"""Containers that are no part of the workload: proxies and agents that other webhooks put into a pod, often first.

Owns their names, as their projects write them. Native sidecars are init containers and need no entry.
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
        "cloud-sql-proxy",  # as Google's examples name it
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
    "consul-dataplane-",  # and the service's name, where a pod has several
    "csql-",  # Cloud SQL Proxy Operator: and namespace and name
    "fluid-fuse-",  # Fluid: and a number; first
    "jfs-mount-",  # JuiceFS: and a number, where a pod has several volumes
)


def is_sidecar(container: views.Container) -> bool:
    """True for a container with the name of a known proxy or agent."""
    return container.name in NAMES or container.name.startswith(_PREFIXES)
