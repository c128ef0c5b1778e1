"""To the cluster as kubectl would go, and what is said when it refuses."""

from cli import kubeconfig
from cluster import client as clients
from cluster import errors

_HINTS = {
    403: "the account lacks a right: see manifests/base/certs.yaml for those that are needed",
    404: "create namespace {namespace} first (kubectl apply -k manifests/base)",
    409: "another run changed it meanwhile; run this again",
    422: "another run changed it meanwhile; run this again",
}


async def connect(given: str | None) -> clients.Client:
    """Connect as kubectl would; inside a pod without a kubeconfig, as its service account. Raises ClusterError."""
    return await clients.connect(kubeconfig.chosen(given))


def refusal(error: errors.ClusterError, namespace: str) -> str:
    """What went wrong, and what most likely mends it."""
    if isinstance(error, errors.ApiError):
        hint = _HINTS.get(error.status, "nothing else was written").format(namespace=namespace)
        return f"the API server refused ({error.status}): {error.message or error.reason}; {hint}"
    if isinstance(error, errors.UnreachableError):
        return f"the API server cannot be reached: {error}"
    return str(error)
