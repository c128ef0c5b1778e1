"""How schedulers find the leader: it writes itself behind the Service, which selects no pods.

An EndpointSlice is what kube-proxy and its likes read. API servers before 1.35 proxy to a Service by its Endpoints, and
`railwright explain pod` comes that way, so the same is written there too. Both belong to the Service and go with it.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from extender import leading
from railwright.cluster import client as clients
from railwright.cluster import errors, watch_wire
from railwright.fabric import names

_LOOK_SECONDS = 10.0  # between two looks at whether somebody else has changed it
_AGAIN_SECONDS = 0.5  # after a failure
_LEAVE_SECONDS = 1.0
_MANAGER = "railwright"
_NOT_FOUND = 404
_LOG = logging.getLogger("railwright.extender")
Object = dict[str, Any]
Read = TypeVar("Read")


class ServicePort(msgspec.Struct, rename="camel"):
    """One port of a Service."""

    port: int
    name: str = ""
    protocol: str = "TCP"
    app_protocol: str | None = None
    target_port: int | str | None = None


class _Metadata(msgspec.Struct):
    uid: str = ""


class _Spec(msgspec.Struct):
    ports: list[ServicePort] = msgspec.field(default_factory=list)


class Service(msgspec.Struct):
    """The Service as far as its endpoints follow from it."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)


def ports(service: Service, ours: Mapping[str, int]) -> list[Object]:
    """The Service's ports as numbers of this process; `ours` are by the name the container gives them."""
    found = []
    for each in service.spec.ports:
        target = each.target_port or each.port
        number = ours.get(target, 0) if isinstance(target, str) else target
        if number:
            entry = {"name": each.name, "port": number, "protocol": each.protocol, "appProtocol": each.app_protocol}
            found.append({key: value for key, value in entry.items() if value is not None})
    return found


def endpoint_slice(service: Service, at: leading.Place, open_ports: Sequence[Object], *, up: bool = True) -> Object:
    """The EndpointSlice (discovery.k8s.io/v1) that leads to this pod, or to nobody."""
    endpoint = {
        "addresses": [at.ip],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "targetRef": _pod(at),
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": _metadata(
            f"{names.EXTENDER_SERVICE}-ipv{_version(at)}",
            at,
            service,
            {
                "kubernetes.io/service-name": names.EXTENDER_SERVICE,
                "endpointslice.kubernetes.io/managed-by": _MANAGER,
            },
        ),
        "addressType": f"IPv{_version(at)}",
        "endpoints": [endpoint] if up else [],
        "ports": list(open_ports),
    }


def endpoints(service: Service, at: leading.Place, open_ports: Sequence[Object], *, up: bool = True) -> Object:
    """The same as Endpoints; not to be mirrored into a second EndpointSlice."""
    subset = {"addresses": [{"ip": at.ip, "targetRef": _pod(at)}], "ports": list(open_ports)}
    label = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    return {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": _metadata(names.EXTENDER_SERVICE, at, service, label),
        "subsets": [subset] if up else [],
    }


def _version(at: leading.Place) -> int:
    return ipaddress.ip_address(at.ip).version


def _pod(at: leading.Place) -> Object:
    return {"kind": "Pod", "namespace": at.namespace, "name": at.pod}


def _metadata(name: str, at: leading.Place, service: Service, labels: Mapping[str, str]) -> Object:
    owner = {"apiVersion": "v1", "kind": "Service", "name": names.EXTENDER_SERVICE, "uid": service.metadata.uid}
    labels = {"app.kubernetes.io/part-of": "railwright", "app.kubernetes.io/component": "extender", **labels}
    return {"name": name, "namespace": at.namespace, "labels": labels, "ownerReferences": [owner]}


class Publication:
    """Writes while `leads` says so, soon after `changed`."""

    def __init__(
        self, client: clients.Client, at: leading.Place, ours: Mapping[str, int], leads: Callable[[], bool]
    ) -> None:
        self._client, self._at, self._ours, self._leads = client, at, ours, leads
        self._core = f"/api/v1/namespaces/{at.namespace}"
        self._discovery = f"/apis/discovery.k8s.io/v1/namespaces/{at.namespace}/endpointslices"
        self._news = asyncio.Event()
        self._told = ""

    def changed(self) -> None:
        """Another leads now, or this one."""
        self._news.set()

    async def run(self) -> None:
        """For ever; at the end nobody is sent here any more."""
        try:
            while True:
                self._news.clear()
                pause = await self._tried() if self._leads() else None
                await self._waited(pause)
        finally:
            await self._withdraw()

    async def _tried(self) -> float:
        """One round; how long to wait for the next one."""
        try:
            await self._write(up=True)
        except errors.ClusterError as error:
            if str(error) != self._told:
                self._told = str(error)
                fix = f"schedulers do not find this leader: look at Service {names.EXTENDER_SERVICE} and the roles"
                _LOG.warning("leader not published", extra={"fields": {"error": self._told, "fix": fix}})
            return _AGAIN_SECONDS
        self._told = ""
        return _LOOK_SECONDS

    async def _waited(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _withdraw(self) -> None:
        """Where no other leader has written itself, nobody is sent to an address that may be another pod's tomorrow."""
        try:
            async with asyncio.timeout(_LEAVE_SECONDS):
                await self._write(up=False)
        except (errors.ClusterError, TimeoutError) as error:
            _LOG.info("leader not withdrawn", extra={"fields": {"error": str(error)}})

    async def _write(self, *, up: bool) -> None:
        service = await self._read(f"{self._core}/services/{names.EXTENDER_SERVICE}", Service)
        open_ports = ports(service, self._ours)
        if not open_ports:
            wanted = " or ".join(self._ours)
            raise errors.ConfigurationError(
                f"Service {names.EXTENDER_SERVICE}: no port has a number or {wanted} as targetPort"
            )
        for path, made in (
            (self._discovery, endpoint_slice(service, self._at, open_ports, up=up)),
            (f"{self._core}/endpoints", endpoints(service, self._at, open_ports, up=up)),
        ):
            await self._put(path, made, up=up)

    async def _read(self, path: str, kind: type[Read]) -> Read:
        """An object. Raises ClusterError, also where a proxy on the way answers in the API server's place."""
        try:
            return msgspec.json.decode(await self._client.get(path), type=kind)
        except watch_wire.UNREADABLE as error:
            raise errors.UnreachableError(f"{path}: {error}") from error

    async def _put(self, path: str, wanted: Object, *, up: bool) -> None:
        """Create, or replace what differs. A conflict with another leader's write is tried again, and seen then."""
        name = wanted["metadata"]["name"]
        try:
            present = await self._read(f"{path}/{name}", Object)
        except errors.ApiError as error:
            if error.status != _NOT_FOUND:
                raise
            if up and self._leads():
                await self._client.post(path, msgspec.json.encode(wanted))
            return
        # what was read may be the next leader's already: the version would not keep ours from replacing it
        overtaken = not self._leads() if up else self._at.ip not in _addresses(present)
        if overtaken or _covers(present, wanted):
            return
        version = present.get("metadata", {}).get("resourceVersion", "")
        metadata = {**wanted["metadata"], "resourceVersion": version}
        await self._client.put(f"{path}/{name}", msgspec.json.encode({**wanted, "metadata": metadata}))


def _addresses(present: Object) -> Iterator[str]:
    for endpoint in present.get("endpoints") or ():
        yield from endpoint.get("addresses") or ()
    for subset in present.get("subsets") or ():
        yield from (each.get("ip", "") for each in subset.get("addresses") or ())


def _covers(present: Any, wanted: Any) -> bool:
    """True where all that is wanted is there; the API server adds fields, and leaves out empty lists."""
    if isinstance(wanted, dict):
        return all(_covers((present or {}).get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        present = present or []
        return len(present) == len(wanted) and all(map(_covers, present, wanted))
    return bool(present == wanted)
