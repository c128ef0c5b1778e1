"""A small client of the API server for tests. Objects are dicts."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp

Object = dict[str, Any]
Objects = list[Object]  # `list` is a method's name below
_MERGE = "application/merge-patch+json"
_JSON_PATCH = "application/json-patch+json"
_VOLCANO_JOB = "batch.volcano.sh/v1alpha1/Job"


class ApiError(Exception):
    """An error of the API server: HTTP status and message."""

    def __init__(self, status: int, message: str, body: Any) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status
        self.message = message
        self.body = body


class Api:
    """Calls the API server. A kind is `Pod`, or `batch.volcano.sh/v1alpha1/Job` if a bare name is ambiguous."""

    def __init__(self, session: aiohttp.ClientSession, server: str) -> None:
        self.session = session
        self.server = server
        self.warnings: Sequence[str] = ()  # of the newest answer, as kubectl would print them
        self._volcano_jobs: set[tuple[str | None, str]] = set()
        self._resources: dict[str, tuple[str, str, bool]] = {}  # kind -> (prefix, plural, namespaced)

    async def get(self, kind: str, name: str, namespace: str | None = None) -> Object:
        """Return one object."""
        return await self.request("GET", await self._path(kind, namespace, name))

    async def get_or_none(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """Return one object, None if there is none."""
        try:
            return await self.get(kind, name, namespace)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def list(self, kind: str, namespace: str | None = None, *, labels: str = "", fields: str = "") -> Objects:
        """Return the objects of a kind, in one namespace or in all, by label and field selectors."""
        query = {"labelSelector": labels, "fieldSelector": fields}
        page = await self.request("GET", await self._path(kind, namespace), query=query)
        items: Objects = page["items"]
        return items

    async def create(self, manifest: Object, *, namespace: str | None = None, dry_run: bool = False) -> Object:
        """Create an object; its namespace is the argument's, else the manifest's own."""
        kind = f"{manifest['apiVersion']}/{manifest['kind']}"
        where = namespace or manifest.get("metadata", {}).get("namespace")
        query = {"dryRun": "All"} if dry_run else {}
        created: Object = await self.request("POST", await self._path(kind, where), body=manifest, query=query)
        if kind == _VOLCANO_JOB and not dry_run:
            name = (where, manifest["metadata"]["name"])
            assert name not in self._volcano_jobs, f"{name}: Volcano may make no pods for it (docs/schedulers.md)"
            self._volcano_jobs.add(name)
        return created

    async def find_rejection(self, manifest: Object, namespace: str) -> str:
        """Create an object by dry run. Return the message of its rejection, "" if it is accepted."""
        try:
            await self.create(manifest, namespace=namespace, dry_run=True)
        except ApiError as error:
            return error.message
        return ""

    async def ensure(self, manifest: Object) -> None:
        """Create an object unless there is one of its name."""
        try:
            await self.create(manifest)
        except ApiError as error:
            if error.status != 409:
                raise

    async def put(self, manifest: Object) -> None:
        """Create an object, or replace the existing one of this name."""
        metadata = manifest["metadata"]
        kind = f"{manifest['apiVersion']}/{manifest['kind']}"
        present = await self.get_or_none(kind, metadata["name"], metadata.get("namespace"))
        if present is None:
            await self.create(manifest)
        else:
            version = {"resourceVersion": present["metadata"]["resourceVersion"]}
            await self.replace({**manifest, "metadata": {**metadata, **version}})

    async def replace(self, manifest: Object) -> Object:
        """PUT an object with its resourceVersion."""
        metadata = manifest["metadata"]
        kind = f"{manifest['apiVersion']}/{manifest['kind']}"
        path = await self._path(kind, metadata.get("namespace"), metadata["name"])
        return await self.request("PUT", path, body=manifest)

    async def patch(
        self,
        kind: str,
        name: str,
        change: Object | Objects,
        namespace: str | None = None,
        *,
        subresource: str = "",
    ) -> Object:
        """Apply a merge patch (dict) or a JSON Patch (list)."""
        path = await self._path(kind, namespace, name, subresource)
        content_type = _JSON_PATCH if isinstance(change, list) else _MERGE
        return await self.request("PATCH", path, body=change, content_type=content_type)

    async def delete(self, kind: str, name: str, namespace: str | None = None, *, grace: int | None = None) -> None:
        """Delete an object, if it exists, and in the background the objects that it owns."""
        try:
            await self._delete(await self._path(kind, namespace, name), grace)
        except ApiError as error:
            if error.status != 404:
                raise

    async def delete_all(self, kind: str, namespace: str, *, grace: int | None = None) -> None:
        """Delete every object of a kind in a namespace."""
        await self._delete(await self._path(kind, namespace), grace)

    async def _delete(self, path: str, grace: int | None) -> None:
        options = {"propagationPolicy": "Background"} | ({} if grace is None else {"gracePeriodSeconds": grace})
        await self.request("DELETE", path, body=options)

    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> Any:
        """Send any request. Return the answer, decoded if it is JSON. Raises ApiError."""
        params = {key: value for key, value in (query or {}).items() if value}
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": content_type} if data is not None else {}
        async with self.session.request(
            method, self.server + path, params=params, data=data, headers=headers
        ) as answer:
            text = await answer.text()
            self.warnings = answer.headers.getall("Warning", [])
            decoded = json.loads(text) if answer.content_type == "application/json" else text
            if answer.status >= 400:
                message = decoded.get("message", text) if isinstance(decoded, dict) else text
                raise ApiError(answer.status, message, decoded)
            return decoded

    async def _path(self, kind: str, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        if kind not in self._resources:
            await self._discover(kind)
        prefix, plural, namespaced = self._resources[kind]
        scope = f"/namespaces/{namespace}" if namespaced and namespace else ""
        return "/".join(part for part in (f"{prefix}{scope}/{plural}", name, subresource) if part)

    async def _discover(self, kind: str) -> None:
        """Read the paths of kinds. A bare name means the first group with the kind, core before the server's order."""
        groups = (await self.request("GET", "/apis"))["groups"]
        versions = ["v1", *(group["preferredVersion"]["groupVersion"] for group in groups)]
        if "/" in kind:
            versions.append(kind.rpartition("/")[0])
        for version in versions:
            prefix = f"/apis/{version}" if "/" in version else f"/api/{version}"
            for resource in (await self.request("GET", prefix))["resources"]:
                if "/" not in resource["name"]:
                    place = (prefix, resource["name"], resource["namespaced"])
                    self._resources[f"{version}/{resource['kind']}"] = place
                    self._resources.setdefault(resource["kind"], place)
        if kind not in self._resources:
            raise LookupError(f"the API server knows no kind {kind!r}; it has {sorted(self._resources)}")
