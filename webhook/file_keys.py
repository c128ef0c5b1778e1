"""Finds out whether the API server stores `fileKeyRef`, by which kubelet reads a variable's value from a file.

The field is of KEP-3721, and on by default since Kubernetes 1.35.
"""

import asyncio
import logging
import re
from collections.abc import Callable

from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names
from railwright.fabric.injection import mounts

_FIRST_VERSION = (1, 35)
_VERSION = re.compile(r"v?(\d{1,3})\.(\d{1,4})")
_INVALID = 422
_SECONDS = 10.0  # for an answer
_PAUSE_SECONDS = 60.0  # between two questions
_LOG = logging.getLogger("railwright.webhook")


def is_supported_by(version: str) -> bool:
    """True if a kubelet of this version supports `fileKeyRef` by default."""
    match = _VERSION.match(version)
    return match is not None and (int(match[1]), int(match[2])) >= _FIRST_VERSION


async def read_support(client: clients.Client, set_supported: Callable[[bool], None]) -> None:
    """Pass to `set_supported` whether the API server stores `fileKeyRef`. An error is only logged."""
    try:
        async with asyncio.timeout(_SECONDS):
            set_supported(await _stores_file_keys(client))
    except (errors.ClusterError, TimeoutError) as error:
        _LOG.warning(
            "cannot find out whether the API server stores fileKeyRef: its last answer is used, or without one ranks "
            "read their variables from files",
            extra={"fields": {"error": str(error) or "no answer in time"}},
        )


async def watch_support(client: clients.Client, set_supported: Callable[[bool], None]) -> None:
    """Call `read_support` once a minute until cancelled, because the API server may be upgraded."""
    while True:
        await asyncio.sleep(_PAUSE_SECONDS)
        await read_support(client, set_supported)


async def _stores_file_keys(client: clients.Client) -> bool:
    """Return True if the API server stores `fileKeyRef`, which a feature gate can switch off in any version.

    Tries it with the dry run of a PodTemplate, which is validated like a pod and creates no pod.
    """
    path = f"/api/v1/namespaces/{installed_names.NAMESPACE}/podtemplates?dryRun=All"
    try:
        return b'"fileKeyRef"' in await client.post(path, _build_example_template())
    except errors.ApiError as error:
        if error.status != _INVALID:
            raise
        return False  # without the field, the variable has no source


def _build_example_template() -> object:
    container = {
        "name": "rank",
        "image": "none",
        "env": [{"name": "NCCL_IB_HCA", "valueFrom": mounts.build_file_reference("NCCL_IB_HCA")}],
    }
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {"generateName": "railwright-"},
        "template": {
            "metadata": {"labels": {"app.kubernetes.io/name": "railwright"}},
            "spec": {"containers": [container], "volumes": [mounts.FOUND.volume]},
        },
    }
