"""Checks whether the API server stores `fileKeyRef` of variables (KEP-3721, on by default since Kubernetes 1.35)."""

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
_RETRY_SECONDS = 15.0  # after an error
_PAUSE_SECONDS = 300.0  # after an answer, which an upgrade changes
_LOG = logging.getLogger("railwright.webhook")


def is_known_to(version: str) -> bool:
    """True if a kubelet of this version supports `fileKeyRef` by default."""
    match = _VERSION.match(version)
    return match is not None and (int(match[1]), int(match[2])) >= _FIRST_VERSION


class SupportCheck:
    """Checks repeatedly whether the API server stores `fileKeyRef`, because it may fail to answer or be upgraded.

    `apply` gets each answer. After an error the last one stays.
    """

    def __init__(self, client: clients.Client, apply: Callable[[bool], None]) -> None:
        self._client, self._apply = client, apply
        self._error = ""  # of the last question

    async def read(self) -> None:
        """Check once, and log repeated equal errors once."""
        try:
            async with asyncio.timeout(_SECONDS):
                is_kept = await _stores_file_keys(self._client)
        except (errors.ClusterError, TimeoutError) as error:
            text = str(error) or "no answer in time"
            if text != self._error:
                _LOG.warning(
                    "cannot ask the API server whether it knows fileKeyRef; its last answer counts, and before the "
                    "first one ranks read files",
                    extra={"fields": {"error": text}},
                )
            self._error = text
        else:
            self._error = ""
            self._apply(is_kept)

    async def run(self) -> None:
        """Check every few minutes until cancelled, and sooner after an error."""
        while True:
            await asyncio.sleep(_RETRY_SECONDS if self._error else _PAUSE_SECONDS)
            await self.read()


async def _stores_file_keys(client: clients.Client) -> bool:
    """Return True if the API server stores `fileKeyRef`, which can be switched off in any version.

    Uses the dry run of a PodTemplate: the API server validates its pod like any other, and nothing runs it.
    """
    path = f"/api/v1/namespaces/{installed_names.NAMESPACE}/podtemplates?dryRun=All"
    try:
        return b'"fileKeyRef"' in await client.post(path, _build_example())
    except errors.ApiError as error:
        if error.status != _INVALID:
            raise
        return False  # without the field, the variable has no source


def _build_example() -> object:
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
