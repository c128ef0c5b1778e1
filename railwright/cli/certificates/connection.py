"""To the cluster as kubectl would go."""

from railwright.cli import kubeconfig
from railwright.cluster import client as clients


async def connect(given: str | None) -> clients.Client:
    """Connect as kubectl would; inside a pod without a kubeconfig, as its service account. Raises ClusterError."""
    return await clients.connect(kubeconfig.choose(given))
