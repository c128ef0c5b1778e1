"""Runs `railwright certs rotate`: makes every step that is due, once. `watching` repeats it until stopped."""

import argparse
import asyncio
import dataclasses

from certs import installation, inventory, rotation, rotator, schedules
from railwright.cli import formats, kubeconfig, output
from railwright.cli.certificates import issuing
from railwright.cluster import client as clients
from railwright.cluster import errors, lease

_POLL_SECONDS = 1.0  # between two checks during a wait of seconds
_MAX_CONFLICTS = 10  # writes by others that are tolerated


def build_rotator(arguments: argparse.Namespace, client: clients.Client) -> rotator.Rotator:
    """Return the rotator of these options. Raises ValueError."""
    return rotator.Rotator(
        client,
        arguments.namespace,
        inventory.list_specs(arguments.namespace, more=arguments.host, clients=arguments.clients),
        schedule=build_schedule(arguments),
        clock=lease.uptime,
    )


def build_schedule(arguments: argparse.Namespace) -> schedules.Schedule:
    """Return the schedule of the options. Raises ValueError for a combination that cannot work."""
    return schedules.Schedule(
        **{field.name: getattr(arguments, field.name) for field in dataclasses.fields(schedules.Schedule)}
    )


async def rotate(arguments: argparse.Namespace) -> int:
    """Make the steps that are due. Wait for steps that become due within seconds; report those due later.

    Return 1 if a webhook configuration is missing, otherwise 0.
    """
    client = await clients.connect(kubeconfig.choose(arguments.kubeconfig))
    try:
        active_rotator = build_rotator(arguments, client)
        steps: list[rotation.Step] = []
        renew_ca, conflicts = arguments.renew_ca, 0
        while True:
            try:
                result = await active_rotator.step(renew_ca=renew_ca)
            except errors.ApiError as error:
                conflicts += 1
                if error.status not in rotator.CONFLICTS or conflicts == _MAX_CONFLICTS:
                    raise
                continue
            if isinstance(result, rotation.Step):
                steps.append(result)
                renew_ca = renew_ca and result.action is not rotation.Action.PREPARE
                _print_step(arguments, result)
            elif result.soon:
                await asyncio.sleep(_POLL_SECONDS)
            else:
                return _report(arguments, steps, result, active_rotator.state)
    finally:
        await client.close()


def _report(
    arguments: argparse.Namespace,
    steps: list[rotation.Step],
    wait: rotation.Wait,
    state: installation.ClusterState | None,
) -> int:
    configurations = state.configurations if state else {}
    missing = [kind for kind, document in configurations.items() if document is None]
    if arguments.output == "json":
        rows = [{"step": step.action.value, "reason": step.reason, "certificates": step.names} for step in steps]
        next_step = {"at": wait.until.isoformat(), "reason": wait.reason}
        formats.print_json({"namespace": arguments.namespace, "steps": rows, "next": next_step, "missing": missing})
    else:
        print(f"next: {wait.until:%Y-%m-%d %H:%M} UTC, {wait.reason}")
    issuing.print_missing(missing)
    return output.FINDINGS if missing else output.OK


def _print_step(arguments: argparse.Namespace, step: rotation.Step) -> None:
    if arguments.output != "json":
        print(f"{step.action}: {step.reason}", flush=True)
