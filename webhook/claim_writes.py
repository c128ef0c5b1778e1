"""Computes the ResourceClaimTemplates that a pod waits for, from the pod and the policy in force. Pure."""

from collections.abc import Sequence

import msgspec

from railwright.fabric import names, text, views
from railwright.fabric.claims import claim_templates, node_devices, own_claims
from railwright.fabric.injection import claim_requests, context, facts, opt_in
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import rejections


class PlanError(Exception):
    """The templates of a pod cannot be computed. The message has the cause and the fix."""


class Writing(msgspec.Struct, frozen=True):
    """The templates that a pod names, and what they are computed from."""

    claimed: claim_requests.ClaimedFabric
    plan: claim_requests.ClaimPlan
    names: tuple[str, ...]  # as the pod names them; they differ from the plan's if the policy has changed

    @property
    def needs_choice(self) -> bool:
        """True if the rails are to be chosen for the gang."""
        return self.plan.choice is claim_requests.Choice.GANG

    @property
    def device_names(self) -> node_devices.DeviceNames:
        """Return the resources under which the devices of the templates count."""
        claims, has_gpus = self.claimed.claims, bool(self.plan.accelerators)
        return node_devices.DeviceNames(
            rails=tuple(rail.resource for rail in self.claimed.rails),
            accelerator=claims.accelerator_resource if has_gpus else "",
            pair_attribute=self.claimed.hardware.pair_attribute,
        )

    def build_templates(self, namespace: str, rails: Sequence[str]) -> list[claim_templates.Tree]:
        """Return the templates. `rails` are those that were chosen for the gang; unknown ones are replaced."""
        positions = self._find_positions(rails)
        specs = claim_requests.build_specs(self.claimed, self.plan, positions)
        if len(specs) != len(self.names):  # groups of the hardware differ in size: take the first, as the name does
            positions = self.plan.rails
            specs = claim_requests.build_specs(self.claimed, self.plan, positions)
        if len(specs) != len(self.names):
            raise PlanError(
                f"the pod has {text.format_count(len(self.names), 'claim')} and the policy needs "
                f"{len(specs)} by now; recreate the pod"
            )
        labels = claim_templates.Labels(
            labels={names.FABRIC: self.plan.fabric, names.MANAGED_BY: names.OWNER},
            annotations=self._annotate(positions),
        )
        return [
            claim_templates.build_template(namespace, name, labels, devices)
            for name, devices in zip(self.names, specs, strict=True)
        ]

    def choose_rails(self, free: claim_templates.FreeDevices) -> tuple[str, ...]:
        """Return the rails for the gang, by what is free. Of equal rails, the first ones are left to single pods."""
        last_first = self.claimed.gives_first_rails
        needs = claim_templates.Needs(len(self.plan.rails), self.plan.accelerators)
        positions = claim_templates.choose_rails(self.claimed.hardware, needs, free, last_first=last_first)
        return tuple(self.claimed.rails[position].name for position in positions)

    def _find_positions(self, rails: Sequence[str]) -> tuple[int, ...]:
        order = list(self.claimed.claims.rails)
        positions = tuple(sorted(order.index(rail) for rail in rails if rail in order))
        is_usable = self.needs_choice and len(positions) == len(self.plan.rails)
        return positions if is_usable else self.plan.rails

    def _annotate(self, positions: Sequence[int]) -> dict[str, str]:
        if self.plan.choice is claim_requests.Choice.SCHEDULER:
            return {}
        return {names.RAILS: ",".join(self.claimed.rails[position].name for position in positions)}


def prepare(pod: views.Pod, policy: policies.Policy, cluster: facts.ClusterFacts) -> Writing:
    """Return what is to be written for a pod that names templates of railwright. Raises PlanError."""
    try:
        fabric = opt_in.find_fabric(pod, policy.document, cluster)
        ctx = context.build(pod, policy, cluster, fabric, context.UserOptions()) if fabric is not None else None
        plan = claim_requests.plan_claims(pod, ctx) if ctx is not None else None
    except rejections.RefusedError as error:
        raise PlanError(error.message) from None
    if plan is None:
        raise PlanError("by the policy in force the pod gets no rails by claims; recreate the pod")
    claimed = policy.compile_once(claim_requests.compile_fabrics)[plan.fabric]
    return Writing(claimed, plan, tuple(claim.template for claim in own_claims.list_claims(pod)))
