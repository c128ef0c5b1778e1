"""Runs `railwright certs`: issues and rotates certificates, and writes the files of `certs admission-config`."""

import argparse
import asyncio
import dataclasses
import datetime as dt
import functools
import pathlib
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

from certs import files, installation, inventory, pki, rotation, schedules
from railwright.cli import cluster_access, formats, options, output
from railwright.cluster import client as clients
from railwright.cluster import errors, lease


def issue(arguments: argparse.Namespace) -> int:
    """Issue missing and expiring certificates. Return 0 if done, 1 if a webhook configuration is missing.

    Raises UnreadableError for wrong usage or unreadable input, and ClusterError.
    """
    if arguments.out is None and not arguments.secrets:
        raise output.UnreadableError("certs: no destination: give --out DIR, --secrets or both")
    return run_action(issue_missing, arguments)


def run_action(
    action: Callable[[argparse.Namespace], Coroutine[None, None, int]], arguments: argparse.Namespace
) -> int:
    """Run an action of the command, and return its exit code. Raises as `issue`."""
    try:
        for host in getattr(arguments, "host", ()):
            pki.build_general_name(host)
        return asyncio.run(action(arguments))
    except OSError as error:
        reason = ": ".join(map(str, filter(None, (error.filename, error.strerror)))) or str(error)
        raise output.UnreadableError(f"certs: {reason}") from None
    except ValueError as error:
        raise output.UnreadableError(f"certs: {error}") from None


async def write_admission_configuration(arguments: argparse.Namespace) -> int:
    """Write the files that have changed into --out, by which the API server and kube-scheduler authenticate.

    Raises ValueError where the cluster has no such certificates.
    """
    async with cluster_access.connect(options.get_cluster(arguments)) as client:
        state = await installation.read_state(client, arguments.namespace, (inventory.CA, *inventory.CLIENTS), ())
    pairs = {name: pair for name, pair in state.pairs.items() if name in inventory.CLIENTS}
    if missing := [inventory.SECRETS[name] for name in inventory.CLIENTS if name not in pairs]:
        raise ValueError(
            f"no certificate in Secret {' and '.join(missing)} of namespace {arguments.namespace}; "
            "issue them with railwright certs rotate --clients"
        )
    out: pathlib.Path = arguments.out
    changed = [name for name, pair in pairs.items() if files.read(out, name) != pair]
    for name in changed:
        files.write(out, name, pairs[name])
    directory = pathlib.PurePosixPath(arguments.directory)
    users = [files.format_user(arguments.namespace), *arguments.user]
    texts = {
        "ca.crt": pki.join_bundle(state.observed.keyring.trusted).decode(),
        files.ADMISSION: files.build_configuration(directory),
        files.KUBECONFIG: files.build_kubeconfig(users, directory / "apiserver.crt", directory / "apiserver.key"),
    }
    for name, text in texts.items():
        path = out / name
        if not path.exists() or path.read_text() != text:
            files.replace(path, text.encode(), files.CERTIFICATE_MODE)
            changed.append(name)
    if formats.is_document(arguments.output):
        formats.print_document({"out": str(out), "changed": changed, "users": users}, arguments.output)
    else:
        print(f"{out}: {', '.join(changed) if changed else 'nothing'} changed")
    return output.OK


_POLL_SECONDS = 1.0  # between two checks during a wait of seconds
_MAX_CONFLICTS = 10  # writes by others that are tolerated


def build_rotator(arguments: argparse.Namespace, client: clients.Client) -> installation.Rotator:
    """Return the rotator of these options. Raises ValueError."""
    return installation.Rotator(
        client,
        arguments.namespace,
        inventory.list_specs(arguments.namespace, more=arguments.host, clients=arguments.clients),
        schedule=build_schedule(arguments),
        clock=lease.read_uptime,
    )


def build_schedule(arguments: argparse.Namespace) -> schedules.Schedule:
    """Return the schedule of the options. Raises ValueError for a combination that cannot work."""
    return schedules.Schedule(
        **{field.name: getattr(arguments, field.name) for field in dataclasses.fields(schedules.Schedule)}
    )


async def rotate_once(arguments: argparse.Namespace) -> int:
    """Make the steps that are due. Wait for steps that become due within seconds; report those due later.

    Return 1 if a webhook configuration is missing, otherwise 0.
    """
    async with cluster_access.connect(options.get_cluster(arguments)) as client:
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
                    print(f"{result.action}: {result.reason}", flush=True)
            elif result.soon:
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
    print_missing(missing)
    return output.FINDINGS if missing else output.OK


_SECRETS = (inventory.CA, *inventory.SERVERS)
_FILES = (*_SECRETS, "client")


async def issue_missing(arguments: argparse.Namespace) -> int:
    """Return 0 if done, 1 if a webhook configuration is missing. Raises ClusterError, OSError and ValueError."""
    stored = {name: files.read(arguments.out, name) for name in _FILES} if arguments.out else {}
    on_disk = {name: pair for name, pair in stored.items() if pair is not None}
    if not arguments.secrets:
        issued = _assemble(on_disk, arguments)
        _write_files(arguments.out, issued)
        return _report(arguments, issued, ())
    hosts = inventory.list_hosts("webhook", arguments.namespace, arguments.host)
    async with cluster_access.connect(options.get_cluster(arguments)) as client:
        state = await installation.read_state(client, arguments.namespace, _SECRETS, hosts)
        issued = _assemble(_merge(on_disk, state.pairs, arguments.out), arguments)
        pem = await installation.write_pairs(client, state, {name: item.pair for name, item in issued.items()})
        updates = await installation.fill_bundles(client, state, pem)
    if arguments.out:
        _write_files(arguments.out, issued)
    return _report(arguments, issued, updates)


def print_missing(kinds: Iterable[str]) -> None:
    """Print a line on stderr for each webhook configuration that does not exist: nothing calls the webhook then."""
    for kind in kinds:
        print(
            f"{kind} {installation.CONFIGURATION!r} does not exist; apply the manifests, then run this again",
            file=sys.stderr,
        )


def _merge(
    on_disk: Mapping[str, pki.Pair], in_cluster: Mapping[str, pki.Pair], folder: pathlib.Path | None
) -> dict[str, pki.Pair]:
    """Join both stores; the cluster's pairs win, because its servers use them. Raises ValueError for two CAs."""
    file_ca, cluster_ca = on_disk.get(inventory.CA), in_cluster.get(inventory.CA)
    if file_ca is not None and cluster_ca is not None and file_ca.certificate_pem != cluster_ca.certificate_pem:
        secret = inventory.SECRETS[inventory.CA]
        raise ValueError(
            f"{folder}/ca.crt and Secret {secret} are two different CAs; "
            "give an empty --out to keep the cluster's, or delete the Secret to replace it"
        )
    return {**on_disk, **in_cluster}


def _assemble(existing: Mapping[str, pki.Pair], arguments: argparse.Namespace) -> dict[str, inventory.IssuedPair]:
    specs = inventory.list_specs(arguments.namespace, more=arguments.host)
    if arguments.out:  # for clients outside the cluster, which read files; no Secret holds it
        specs.append(inventory.CertificateSpec("client", "railwright-client", pki.Usage.CLIENT))
    return inventory.assemble(
        existing,
        specs,
        now=dt.datetime.now(dt.UTC),
        ca_lifetime=dt.timedelta(days=arguments.ca_days),
        certificate_lifetime=dt.timedelta(days=arguments.days),
    )


def _write_files(folder: pathlib.Path, issued: Mapping[str, inventory.IssuedPair]) -> None:
    for name, item in issued.items():
        if files.read(folder, name) != item.pair:
            files.write(folder, name, item.pair)


def _report(
    arguments: argparse.Namespace,
    issued: Mapping[str, inventory.IssuedPair],
    updates: Sequence[installation.BundleUpdate],
) -> int:
    missing = [update.kind for update in updates if not update.exists]
    if formats.is_document(arguments.output):
        formats.print_document(_build_document(arguments, issued, updates), arguments.output)
    else:
        for name, item in issued.items():
            print(f"{name:9} {'kept' if item.reused else 'issued':7} until {item.not_after:%Y-%m-%d}")
        for update in updates:
            print(f"{update.kind} {installation.CONFIGURATION}: {_describe(update)}")
    print_missing(missing)
    return output.FINDINGS if missing else output.OK


def _build_document(
    arguments: argparse.Namespace,
    issued: Mapping[str, inventory.IssuedPair],
    updates: Sequence[installation.BundleUpdate],
) -> dict[str, Any]:
    return {
        "out": str(arguments.out) if arguments.out else None,
        "namespace": arguments.namespace if arguments.secrets else None,
        "certificates": [
            {
                "name": name,
                "state": "kept" if item.reused else "issued",
                "notAfter": item.not_after.isoformat(),
                "secret": inventory.SECRETS.get(name) if arguments.secrets else None,
            }
            for name, item in issued.items()
        ],
        "configurations": [
            {"kind": update.kind, "exists": update.exists, "filled": update.filled, "foreign": update.foreign}
            for update in updates
        ],
    }


def _describe(update: installation.BundleUpdate) -> str:
    if not update.exists:
        return "missing"
    return f"caBundle filled for {', '.join(update.filled)}" if update.filled else "caBundle up to date"


ACTIONS: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "issue": issue,
    "rotate": functools.partial(run_action, rotate_once),
    "admission-config": functools.partial(run_action, write_admission_configuration),
}
