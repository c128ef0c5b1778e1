"""Says which rails the pods of a job should use, and gives a verdict for each: which of the pods that have it used it.

The rails of a pod come from its injection record, its claims or the policy, never from a log.
"""

from collections.abc import Callable, Sequence

import msgspec

from railwright.fabric import intent, text, views
from railwright.fabric.nccl import lists
from railwright.fabric.policy import model as policies
from railwright.fabric.verification import log_types

_LIST = "NCCL_IB_HCA"


def expect(document: policies.FabricPolicy, fabric_name: str) -> log_types.Expected:
    """Return what each pod of a job on this fabric should use: all rails of the fabric.

    The fabric must have rails. `devicesPerRail` is the number of NICs on EFA only: a shared device plugin hands out
    one HCA for any number of requested devices.
    """
    fabric = document.fabrics[fabric_name]
    per_rail = fabric.devices_per_rail if fabric.transport is policies.Transport.EFA else 1
    devices = [
        tuple(
            sorted(
                {
                    device
                    for device in (rail.device, *(shape.devices.get(rail.name) for shape in document.node_shapes))
                    if device
                }
            )
        )
        for rail in fabric.rails
    ]
    return log_types.Expected(
        rails=len(fabric.rails) * per_rail,
        transport=fabric.transport,
        devices=tuple(devices) if all(devices) else (),
        names=tuple([rail.name for rail in fabric.rails]),
    )


def expect_of_pod(pod: views.Pod) -> log_types.Expected:
    """Return what a pod should use by the rails that its claims hold, otherwise by its injection record.

    `rails` is None without a record, and without rails in it. Device names are those of the list that railwright wrote.
    A user's list is not evidence of them.
    """
    placement = intent.read_placement(pod)
    if placement is not None and (held := placement.devices):
        held_names = tuple((device.rdma_device,) for device in held) if all(one.rdma_device for one in held) else ()
        return log_types.Expected(len(held), devices=held_names, names=tuple(device.rail for device in held))
    record = intent.read_record(pod)
    if not record.rails:
        return log_types.Expected()
    rail_names = tuple(record.rails)
    devices: tuple[tuple[str, ...], ...] = ()
    own_list = ""
    for container in pod.spec.containers:
        if container.name not in record.containers:
            continue
        value = next((entry.value for entry in container.env if entry.name == _LIST), None) or ""
        if _LIST in record.user_values.get(container.name, ()):
            own_list = f"{_LIST} {text.quote(value)}" if value else _LIST
            continue
        written = lists.parse(value)
        if written.exact and not written.exclude and len(written.entries) == len(rail_names):
            devices = tuple((entry.name,) for entry in written.entries)
    return log_types.Expected(rails=len(rail_names), devices=devices, names=rail_names, own_list=own_list)


def add_devices(own: log_types.Expected, policy: log_types.Expected) -> log_types.Expected:
    """Return what a pod should use, with transport and device names of its rails by the policy where it has none."""
    own = msgspec.structs.replace(own, transport=policy.transport)
    if own.devices or not policy.devices or not set(own.names) <= set(policy.names):
        return own
    return msgspec.structs.replace(own, devices=tuple(policy.devices[policy.names.index(name)] for name in own.names))


def list_rails(
    pods: Sequence[log_types.Pod], find_expected: Callable[[str], log_types.Expected]
) -> tuple[log_types.Rail, ...]:
    """Return a verdict for each named rail that a pod should have used, in the order of the pods."""
    rail_names = dict.fromkeys(name for pod in pods for name in find_expected(pod.name).names)
    return tuple(_assess(name, pods, find_expected) for name in rail_names)


def _assess(
    name: str, pods: Sequence[log_types.Pod], find_expected: Callable[[str], log_types.Expected]
) -> log_types.Rail:
    used: list[str] = []
    unused: list[str] = []
    unknown: list[str] = []
    devices: set[str] = set()
    for pod in pods:
        expected = find_expected(pod.name)
        if name not in expected.names:
            continue
        candidates = expected.devices[expected.names.index(name)] if expected.devices else ()
        devices.update(candidates)
        has_channels = any(port.partition(":")[0] in candidates for port in pod.used)
        if pod.state == log_types.RDMA or (has_channels and pod.state != log_types.TCP):
            used.append(pod.name)
        elif pod.state == log_types.TCP or (candidates and pod.used):
            unused.append(pod.name)
        else:
            unknown.append(pod.name)
    state = log_types.TCP if unused else log_types.UNKNOWN if unknown else log_types.RDMA
    return log_types.Rail(name, state, tuple(sorted(devices)), tuple(used), tuple(unused), tuple(unknown))
