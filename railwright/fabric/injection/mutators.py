"""The table of mutators. A mutation of pods is a module with one function of this signature, and a row here.

A mutator gets the pod as the mutators above it in the table have changed it, and returns what it changes. So nothing
has to derive what another mutator did.
"""

from typing import NamedTuple, Protocol

from railwright.fabric.injection import (
    applied_pod,
    attachments,
    claim_requests,
    claimed_rails,
    context,
    devices,
    environment,
    mounts,
    no_rails,
    node_capacity,
    pod_changes,
    preflight,
    security,
    ucx_devices,
)


class Mutator(Protocol):
    """A pure function from a pod to a contribution. Raises RefusedError to reject the pod."""

    def __call__(self, pod: applied_pod.AppliedPod, ctx: context.InjectionContext, /) -> pod_changes.Contribution:
        """Return the changes for a pod."""
        ...


class Row(NamedTuple):
    """A mutator with the word by which an author leaves it out (annotation `skip`); "" if that is not possible."""

    skip: str
    mutate: Mutator


MUTATORS = (
    Row("", node_capacity.check),
    Row("", claim_requests.name_templates),  # the word `devices` leaves out these devices, too
    Row("networks", attachments.attach),
    Row("devices", devices.request_devices),
    Row("", claimed_rails.request_call),
    Row("mounts", mounts.mount_volumes),
    Row("security", security.grant),
    Row("", ucx_devices.set_devices),
    Row("env", environment.set_variables),  # removes entries: a mutator of env goes before it
    Row("preflight", preflight.add_init_container),
    Row("", no_rails.explain),
)
