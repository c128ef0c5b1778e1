"""Lists the pods that have one of some fabrics' labels and have not ended: their metadata only."""

from collections.abc import Sequence

import msgspec

from railwright.cluster import client as clients
from railwright.fabric import names, views
from railwright.fabric.workloads import fabric_users

_METADATA = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
_PAGE, _MAX_PAGES = 500, 4  # a kilobyte for each pod


class _ListMeta(msgspec.Struct, frozen=True):
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct, frozen=True):
    items: list[views.Pod] | None = None
    metadata: _ListMeta = _ListMeta()


_decode = msgspec.json.Decoder(_List).decode


async def list_pods(client: clients.Client, labels: Sequence[str]) -> fabric_users.LabelledPods:
    """Return the pods with one of these values of the label. Raises ClusterError, or `watch_wire.UNREADABLE`."""
    query = {
        "labelSelector": f"{names.FABRIC} in ({','.join(labels)})",
        "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed",
        "limit": str(_PAGE),
    }
    pods: list[views.Pod] = []
    for _ in range(_MAX_PAGES):
        page = _decode(await client.get("/api/v1/pods", query, _METADATA))
        pods += page.items or ()
        if not page.metadata.continue_:
            return fabric_users.LabelledPods(pods, is_complete=True)
        query["continue"] = page.metadata.continue_
    return fabric_users.LabelledPods(pods, is_complete=False)
