"""Lets only the leader answer schedulers, while the other replicas stand by with synced caches.

Gates the scheduling handlers and reacts to a change of leader. `railwright.cluster.lease` runs the election. Two
replicas never assume pods at the same time: one that loses the Lease stops answering before another can acquire it, and
forgets its assumed pods before it leads again.

Schedulers are routed to the leader by the endpoints of the Service, which has no selector: the leader writes them.
kube-proxy reads the EndpointSlice. API servers before 1.35 proxy to a Service by its Endpoints, and `railwright explain
pod` uses that proxy, so both objects are written. The Service owns both, and they are deleted with it.
"""

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from extender import decider
from railwright.cluster import client as clients
from railwright.cluster import errors, installed_names, lease, watch_wire
from railwright.serving import metrics, routes

_PARTS = {"pod": "POD_NAME", "namespace": "POD_NAMESPACE", "ip": "POD_IP"}
_LOG = logging.getLogger("railwright.extender")


class PodAddress(msgspec.Struct, frozen=True):
    """Name, namespace and IP address of this process's pod, from the downward API."""

    pod: str
    namespace: str
    ip: str


def get_pod_address(environ: Mapping[str, str]) -> PodAddress:
    """Return the pod's address from environment variables. Raises ConfigurationError if some are missing."""
    if missing := [variable for variable in _PARTS.values() if not environ.get(variable)]:
        raise errors.ConfigurationError(
            f"--leader-elect: {', '.join(missing)} not set: set them from the downward API (metadata.name, "
            "metadata.namespace, status.podIP), as manifests/base/extender.yaml does"
        )
    return PodAddress(**{name: environ[variable] for name, variable in _PARTS.items()})


def build_timings(seconds: float) -> lease.Timings:
    """Return the timings of a Lease with this duration, in the proportions of client-go's 15, 10 and 2 seconds."""
    return lease.Timings(duration=seconds, renew=seconds * 2 / 3, retry=seconds * 2 / 15)


class Leadership:
    """This process's role, leader or standby."""

    def __init__(self, deciding: decider.Decider, counters: metrics.Metrics) -> None:
        self._decider, self._counters = deciding, counters
        self._listeners: Sequence[Callable[[bool], None]] = ()
        self._term: int | None = None
        self.election: lease.Election | None = None  # None without other replicas: this one leads

    def build_election(
        self, client: clients.Client, address: PodAddress, *, seconds: float, eligible: Callable[[], bool]
    ) -> lease.Election:
        """Return an election for the caller to run. This process is a candidate while `eligible` is true."""
        self.election = lease.Election(
            client,
            address.namespace,
            installed_names.EXTENDER,
            lease.create_identity(address.pod),
            timings=build_timings(seconds),
            changed=self._handle_change,
            eligible=eligible,
        )
        return self.election

    def notify(self, *listeners: Callable[[bool], None]) -> None:
        """Call the listeners now and at each change, with True if this process leads."""
        self._listeners = listeners
        for listener in listeners:
            listener(self.is_leader)

    @property
    def is_leader(self) -> bool:
        """True if this process answers schedulers."""
        return self.election is None or self.election.leading

    def resign(self) -> None:
        """Release the Lease, if there is an election."""
        if self.election is not None:
            self.election.resign()

    def gate(self, table: Sequence[routes.Route]) -> list[routes.Route]:
        """Return the routes, answered with 503 and the leader's name while this process stands by."""
        return [route._replace(handle=self._gate(route.handle)) for route in table]

    def _gate(self, handle: routes.Handle) -> routes.Handle:
        def answer(call: routes.Call) -> routes.Reply | Awaitable[routes.Reply]:
            if not self.is_leader:
                raise routes.HttpError(503, self._format_standby())
            return handle(call)

        return answer

    def _format_standby(self) -> str:
        holder = self.election.holder if self.election else ""
        leader = f"{holder.rpartition('_')[0]} leads" if holder else "nobody leads yet"
        return f"this extender stands by: {leader}; reconnect to the Service {installed_names.EXTENDER}"

    def _handle_change(self, is_leader: bool) -> None:  # noqa: FBT001 - a state
        self._counters.leader_transitions.inc()
        if is_leader and self.election is not None:
            if self._term == self.election.term:
                self._decider.forget_sessions()
            elif self._term is not None:
                self._decider.forget()  # another replica has led meanwhile, so the assumed pods are outdated
            self._term = self.election.term
        for listener in self._listeners:
            listener(is_leader)


# --- endpoints ------------------------------------------------------------------------------------------------

_CHECK_SECONDS = 10.0  # between two checks for changes by others
_RETRY_SECONDS = 0.5  # after a failure
_WITHDRAW_SECONDS = 1.0
_MANAGER = "railwright"
_MISSING = 404  # HTTP status
Object = dict[str, Any]
Decoded = TypeVar("Decoded")


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
    """The fields of the Service that determine its endpoints."""

    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    spec: _Spec = msgspec.field(default_factory=_Spec)


def build_ports(service: Service, container_ports: Mapping[str, int]) -> list[Object]:
    """Return the endpoint ports for the Service's ports. `container_ports` maps names to port numbers."""
    entries = []
    for port in service.spec.ports:
        target = port.target_port or port.port
        number = container_ports.get(target, 0) if isinstance(target, str) else target
        if number:
            entry = {"name": port.name, "port": number, "protocol": port.protocol, "appProtocol": port.app_protocol}
            entries.append({key: value for key, value in entry.items() if value is not None})
    return entries


def build_endpoint_slice(
    service: Service, address: PodAddress, open_ports: Sequence[Object], *, is_ready: bool = True
) -> Object:
    """Return the EndpointSlice (discovery.k8s.io/v1) with this pod, or without endpoints if it is not ready."""
    endpoint = {
        "addresses": [address.ip],
        "conditions": {"ready": True, "serving": True, "terminating": False},
        "targetRef": _build_target_reference(address),
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": _build_metadata(
            f"{installed_names.EXTENDER}-ipv{_get_ip_version(address)}",
            address,
            service,
            {
                "kubernetes.io/service-name": installed_names.EXTENDER,
                "endpointslice.kubernetes.io/managed-by": _MANAGER,
            },
        ),
        "addressType": f"IPv{_get_ip_version(address)}",
        "endpoints": [endpoint] if is_ready else [],
        "ports": list(open_ports),
    }


def build_endpoints(
    service: Service, address: PodAddress, open_ports: Sequence[Object], *, is_ready: bool = True
) -> Object:
    """Return the same as Endpoints, with a label that prevents mirroring into a second EndpointSlice."""
    subset = {
        "addresses": [{"ip": address.ip, "targetRef": _build_target_reference(address)}],
        "ports": list(open_ports),
    }
    label = {"endpointslice.kubernetes.io/skip-mirror": "true"}
    return {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": _build_metadata(installed_names.EXTENDER, address, service, label),
        "subsets": [subset] if is_ready else [],
    }


def _get_ip_version(address: PodAddress) -> int:
    return ipaddress.ip_address(address.ip).version


def _build_target_reference(address: PodAddress) -> Object:
    return {"kind": "Pod", "namespace": address.namespace, "name": address.pod}


def _build_metadata(name: str, address: PodAddress, service: Service, labels: Mapping[str, str]) -> Object:
    owner = {"apiVersion": "v1", "kind": "Service", "name": installed_names.EXTENDER, "uid": service.metadata.uid}
    labels = {"app.kubernetes.io/part-of": "railwright", "app.kubernetes.io/component": "extender", **labels}
    return {"name": name, "namespace": address.namespace, "labels": labels, "ownerReferences": [owner]}


class EndpointPublisher:
    """Writes the endpoints while this process leads: periodically, and soon after `wake`."""

    def __init__(
        self,
        client: clients.Client,
        address: PodAddress,
        container_ports: Mapping[str, int],
        is_leader: Callable[[], bool],
    ) -> None:
        self._client, self._address, self._container_ports, self._is_leader = (
            client,
            address,
            container_ports,
            is_leader,
        )
        self._core = f"/api/v1/namespaces/{address.namespace}"
        self._discovery = f"/apis/discovery.k8s.io/v1/namespaces/{address.namespace}/endpointslices"
        self._wakeup = asyncio.Event()
        self._last_error = ""

    def wake(self) -> None:
        """Run the next round now, after a change of leader."""
        self._wakeup.set()

    async def run(self) -> None:
        """Publish until cancelled, then withdraw this pod's address."""
        try:
            while True:
                self._wakeup.clear()
                pause = await self._try_write() if self._is_leader() else None
                await self._wait(pause)
        finally:
            await self._withdraw()

    async def _try_write(self) -> float:
        """Write once. Return the seconds until the next attempt."""
        try:
            await self._write(is_ready=True)
        except errors.ClusterError as error:
            if str(error) != self._last_error:
                self._last_error = str(error)
                fix = (
                    f"schedulers cannot reach this leader: check Service {installed_names.EXTENDER} and the RBAC roles"
                )
                _LOG.warning("leader not published", extra={"fields": {"error": self._last_error, "fix": fix}})
            return _RETRY_SECONDS
        self._last_error = ""
        return _CHECK_SECONDS

    async def _wait(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wakeup.wait()
        except TimeoutError:
            pass

    async def _withdraw(self) -> None:
        """Remove this pod's address, which another pod may get later, unless another leader has replaced it."""
        try:
            async with asyncio.timeout(_WITHDRAW_SECONDS):
                await self._write(is_ready=False)
        except (errors.ClusterError, TimeoutError) as error:
            _LOG.info("leader not withdrawn", extra={"fields": {"error": str(error)}})

    async def _write(self, *, is_ready: bool) -> None:
        service = await self._read(f"{self._core}/services/{installed_names.EXTENDER}", Service)
        open_ports = build_ports(service, self._container_ports)
        if not open_ports:
            port_names = " or ".join(self._container_ports)
            raise errors.ConfigurationError(
                f"Service {installed_names.EXTENDER}: no port has a number or {port_names} as targetPort"
            )
        for path, manifest in (
            (self._discovery, build_endpoint_slice(service, self._address, open_ports, is_ready=is_ready)),
            (f"{self._core}/endpoints", build_endpoints(service, self._address, open_ports, is_ready=is_ready)),
        ):
            await self._put(path, manifest, is_ready=is_ready)

    async def _read(self, path: str, kind: type[Decoded]) -> Decoded:
        """Return an object. Raises ClusterError, also if a proxy answers instead of the API server."""
        try:
            return msgspec.json.decode(await self._client.get(path), type=kind)
        except watch_wire.UNREADABLE as error:
            raise errors.UnreachableError(f"{path}: {error}") from error

    async def _put(self, path: str, desired: Object, *, is_ready: bool) -> None:
        """Create the object, or replace it if it differs. After a conflict with another leader the caller retries."""
        name = desired["metadata"]["name"]
        try:
            current = await self._read(f"{path}/{name}", Object)
        except errors.ApiError as error:
            if error.status != _MISSING:
                raise
            if is_ready and self._is_leader():
                await self._client.post(path, msgspec.json.encode(desired))
            return
        # the object may already be the next leader's, and its resourceVersion would not prevent replacing it
        replaced_by_other = not self._is_leader() if is_ready else self._address.ip not in _list_addresses(current)
        if replaced_by_other or _covers(current, desired):
            return
        version = current.get("metadata", {}).get("resourceVersion", "")
        metadata = {**desired["metadata"], "resourceVersion": version}
        await self._client.put(f"{path}/{name}", msgspec.json.encode({**desired, "metadata": metadata}))


def _list_addresses(current: Object) -> Iterator[str]:
    for endpoint in current.get("endpoints") or ():
        yield from endpoint.get("addresses") or ()
    for subset in current.get("subsets") or ():
        yield from (address.get("ip", "") for address in subset.get("addresses") or ())


def _covers(current: Any, desired: Any) -> bool:
    """True if `current` contains all of `desired`. The API server adds fields and drops empty lists."""
    if isinstance(desired, dict):
        return all(_covers((current or {}).get(key), value) for key, value in desired.items())
    if isinstance(desired, list):
        current = current or []
        return len(current) == len(desired) and all(map(_covers, current, desired))
    return bool(current == desired)
