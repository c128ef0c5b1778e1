"""Lists the pods that have one of some fabrics' labels and have not ended: their metadata only."""

from collections.abc import Sequence

from railwright.cluster import client as clients
from railwright.cluster import watch_wire
from railwright.fabric import names, views
from railwright.fabric.workloads import fabric_users

_METADATA = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
_PAGE, _MAX_PAGES = "500", 4  # a kilobyte for each pod


class _Page(views.View, frozen=True):
    items: list[views.Pod] | None  # Go encodes an empty list as null
    metadata: watch_wire.ListMeta = watch_wire.ListMeta()


async def list_pods(client: clients.Client, labels: Sequence[str]) -> fabric_users.LabelledPods:
    """Return the pods with one of these values of the label. Raises ClusterError."""
    path = "/api/v1/pods"
    query = {
        "labelSelector": f"{names.FABRIC} in ({','.join(labels)})",
        "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed",
        "limit": _PAGE,
    }
    pods: list[views.Pod] = []
    for _ in range(_MAX_PAGES):
        page = watch_wire.decode_object(client, path, await client.get(path, query, _METADATA), _Page)
        pods += page.items or ()
        if not page.metadata.continue_:
            return fabric_users.LabelledPods(pods, is_complete=True)
        query["continue"] = page.metadata.continue_
    return fabric_users.LabelledPods(pods, is_complete=False)
