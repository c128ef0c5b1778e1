"""Runs Helm with the chart on the real API server."""

import asyncio
import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import yaml

from plane import api, helm, plane, processes, waiting

ROOT = pathlib.Path(__file__).resolve().parents[3]
CHART, BASE = ROOT / "manifests" / "chart", ROOT / "manifests" / "base"
CLAIMS = ROOT / "manifests" / "components" / "claims" / "rbac.yaml"
WEBHOOK_URLS = pathlib.Path(__file__).with_name("webhook_urls.py")
NAMESPACE, RELEASE = "railwright-system", "railwright"
WHOLE = "--set=extender.enabled=true,admissionPolicy.mode=Deny,quota=true"  # as manifests/base


class FailedError(Exception):
    """Helm failed; the text is its output."""


async def clear(client: api.Api) -> None:
    """Remove an earlier installation from the namespace."""
    documents = [
        document
        for path in (*BASE.glob("*.yaml"), CLAIMS)
        for document in yaml.safe_load_all(path.read_text())
        if document
    ]
    left = [document for document in documents if document["kind"] not in ("Namespace", "Kustomization")]
    places = [(f"{tree['apiVersion']}/{tree['kind']}", tree["metadata"]) for tree in left]
    await asyncio.gather(*(client.delete(kind, at["name"], at.get("namespace")) for kind, at in places))
    for kind in ("Secret", "EndpointSlice", "Endpoints"):
        await client.delete_all(kind, NAMESPACE)

    async def is_empty() -> bool:
        await client.delete_all("Pod", NAMESPACE, grace=0)
        return not await client.list("Pod", NAMESPACE) and not await client.list("ReplicaSet", NAMESPACE)

    await waiting.wait(is_empty, describe=f"namespace {NAMESPACE} to be empty")


async def read_versions(on: plane.Plane, rendering: str) -> dict[tuple[str, str], Any]:
    """Return the generation of each object, which status updates do not change, or else its resourceVersion."""
    items = json.loads(await on.kubectl("get", "-o", "json", "-f", "-", stdin=rendering))["items"]
    return {
        (item["kind"], item["metadata"]["name"]): item["metadata"].get("generation")
        or item["metadata"]["resourceVersion"]
        for item in items
    }


class Helm:
    """Runs Helm with a configuration and cache of the test's own."""

    def __init__(
        self,
        home: pathlib.Path,
        kubeconfig: pathlib.Path | str = os.devnull,
        *,
        namespace: str = NAMESPACE,
        enter: Sequence[str] = (),
    ) -> None:
        """Without `namespace`, the arguments name it. `enter` precedes the command line."""
        self._home, self._kubeconfig = home, str(kubeconfig)
        self._command = (*enter, str(helm.locate()))
        self._common = (f"--namespace={namespace}",) if namespace else ()
        self.options: tuple[str, ...] = (WHOLE,)  # of every installation and upgrade

    async def __call__(self, *arguments: str) -> str:
        """Run Helm and return its standard output. Raises FailedError."""
        places = {f"HELM_{kind}_HOME": str(self._home / kind.lower()) for kind in ("CACHE", "CONFIG", "DATA")}
        environment = {"PATH": os.environ["PATH"], "HOME": str(self._home), "KUBECONFIG": self._kubeconfig, **places}
        code, out, err = await processes.run(*self._command, *arguments, *self._common, env=environment)
        if code:
            raise FailedError(err + out)
        return out

    async def install(self, *options: str) -> str:
        """Install a first release of the chart. The namespace exists, or the options create it."""
        return await self("install", RELEASE, str(CHART), *self.options, *options)

    async def upgrade(self, *options: str) -> str:
        """Upgrade the release."""
        return await self("upgrade", RELEASE, str(CHART), *self.options, *options)
