"""`railwright certs rotate`: all that is due, once.

Owns the words of the answer. For ever is `watching`'s.
"""

import argparse
import asyncio
import dataclasses
import sys

from certs import installation, inventory, rotation, rotator, schedules
from railwright.cli import formats, kubeconfig, output
from railwright.cluster import client as clients
from railwright.cluster import errors, lease

_LOOK_SECONDS = 1.0  # between two looks while seconds are waited for
_TRIES = 10  # looks that another writer may overtake


def made(arguments: argparse.Namespace, client: clients.Client) -> rotator.Rotator:
    """The rotator of these arguments. Raises ValueError."""
    return rotator.Rotator(
        client,
        arguments.namespace,
        inventory.wanted(arguments.namespace, more=arguments.host, callers=arguments.callers),
        schedule=build_schedule(arguments),
        clock=lease.uptime,
    )


def build_schedule(arguments: argparse.Namespace) -> schedules.Schedule:
    """Return the schedule of the options. Raises ValueError for a combination that cannot work."""
    return schedules.Schedule(
        **{field.name: getattr(arguments, field.name) for field in dataclasses.fields(schedules.Schedule)}
    )


async def rotate(arguments: argparse.Namespace) -> int:
    """Do what is due, waiting out seconds but no days; 1 where a webhook configuration is missing."""
    client = await clients.connect(kubeconfig.choose(arguments.kubeconfig))
    try:
        turning = made(arguments, client)
        done: list[rotation.Step] = []
        renewing, tries = arguments.renew_authority, _TRIES
        while True:
            try:
                found = await turning.step(renew_authority=renewing)
            except errors.ApiError as error:
                tries -= 1
                if error.status not in rotator.OVERTAKEN or not tries:
                    raise
                continue
            if isinstance(found, rotation.Step):
                done.append(found)
                renewing = renewing and found.action is not rotation.Action.PREPARE
                _say(arguments, f"{found.action}: {found.reason}")
            elif found.soon:
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                return _report(arguments, done, found, turning.looked)
    finally:
        await client.close()


def _report(
    arguments: argparse.Namespace,
    done: list[rotation.Step],
    found: rotation.Wait,
    looked: installation.Look | None,
) -> int:
    configurations = looked.configurations if looked else {}
    missing = [kind for kind, document in configurations.items() if document is None]
    if arguments.output == "json":
        steps = [{"step": each.action.value, "reason": each.reason, "leaves": each.names} for each in done]
        following = {"at": found.until.isoformat(), "reason": found.reason}
        formats.print_json({"namespace": arguments.namespace, "steps": steps, "next": following, "missing": missing})
    else:
        print(f"next: {found.until:%Y-%m-%d %H:%M} UTC, {found.reason}")
    for kind in missing:
        print(
            f"{kind} {installation.CONFIGURATION!r} does not exist; apply the manifests, then run this again",
            file=sys.stderr,
        )
    return output.FINDINGS if missing else output.OK


def _say(arguments: argparse.Namespace, line: str) -> None:
    if arguments.output != "json":
        print(line, flush=True)
