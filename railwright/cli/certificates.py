"""Runs `railwright certs rotate` once."""

import argparse
import asyncio
import functools
import sys
from collections.abc import Awaitable, Callable

from certs import installation, inventory, pki, rotation
from railwright.cli import cluster_access, formats, output
from railwright.cluster import client as clients
from railwright.cluster import errors


def run_action(
    action: Callable[[argparse.Namespace, clients.Client], Awaitable[int]], arguments: argparse.Namespace
) -> int:
    """Run an action on the cluster, and return its exit code. Raises UnreadableError and ClusterError."""
    try:
        for host in getattr(arguments, "host", ()):
            pki.build_general_name(host)
        return cluster_access.run(arguments, functools.partial(action, arguments))
    except OSError as error:
        reason = ": ".join(map(str, filter(None, (error.filename, error.strerror)))) or str(error)
        raise output.UnreadableError(f"certs: {reason}") from None
    except ValueError as error:
        raise output.UnreadableError(f"certs: {error}") from None


_POLL_SECONDS = 1.0  # between two checks during a wait of minutes
_MAX_CONFLICTS = 10  # writes by others that are tolerated


def build_rotator(arguments: argparse.Namespace, client: clients.Client) -> installation.Rotator:
    """Return the rotator of these options."""
    return installation.Rotator(
        client,
        arguments.namespace,
        inventory.list_specs(
            arguments.namespace,
            more=arguments.host,
            caller=arguments.scheduler_client,
            admission_only=arguments.admission_only,
        ),
        arguments.overlap,
    )


async def rotate_once(arguments: argparse.Namespace, client: clients.Client) -> int:
    """Make the steps that are due. Wait for steps that become due within minutes; report those due later.

    Return 1 if a webhook configuration is missing, otherwise 0.
    """
    active_rotator = build_rotator(arguments, client)
    steps: list[rotation.Step] = []
    renew_ca, conflicts = arguments.renew_ca, 0
    while True:
        try:
            result = await active_rotator.step(renew_ca=renew_ca)
        except errors.ApiError as error:
            conflicts += 1
            if error.status not in installation.CONFLICTS or conflicts == _MAX_CONFLICTS:
                raise
            continue
        if isinstance(result, rotation.Step):
            steps.append(result)
            renew_ca = renew_ca and result.action is not rotation.Action.PREPARE
            if not formats.is_document(arguments.output):
                output.print_change(f"{result.action}: {result.reason}")
        elif result.soon:
            with output.show_progress(f"waiting until {result.until:%H:%M:%S} UTC: {result.reason}"):
                await asyncio.sleep(_POLL_SECONDS)
        else:
            return _report_rotation(arguments, steps, result, active_rotator.state)


def _report_rotation(
    arguments: argparse.Namespace,
    steps: list[rotation.Step],
    wait: rotation.Wait,
    state: installation.ClusterState | None,
) -> int:
    configurations = state.configurations if state else {}
    missing = [kind for kind, document in configurations.items() if document is None]
    if formats.is_document(arguments.output):
        rows = [{"step": step.action.value, "reason": step.reason, "certificates": step.names} for step in steps]
        next_step = {"at": wait.until.isoformat(), "reason": wait.reason}
        document = {"namespace": arguments.namespace, "steps": rows, "next": next_step, "missing": missing}
        formats.print_document(document, arguments.output)
    else:
        print(f"next: {wait.until:%Y-%m-%d %H:%M} UTC, {wait.reason}")
    for kind in missing:  # nothing calls the webhook then
        print(
            f"{kind} {installation.CONFIGURATION!r} does not exist; apply the manifests, then run the command again",
            file=sys.stderr,
        )
    return output.FINDINGS if missing else output.OK
