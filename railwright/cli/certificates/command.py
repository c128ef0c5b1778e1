"""Runs `railwright certs`: handles errors of its subcommands, and writes the files of `certs admission-config`."""

import argparse
import asyncio
import pathlib
import pkgutil
from collections.abc import Callable, Coroutine

from certs import admission, files, installation, inventory, trust
from certs import issue as issuance
from railwright.cli import formats, kubeconfig, output
from railwright.cli.certificates import issuing, rotating
from railwright.cluster import client as clients

_WATCH = "railwright.cli.certificates.watching:watch"  # with the imports of a server


def issue(arguments: argparse.Namespace) -> int:
    """Issue missing and expiring certificates. Return 0 if done, 1 if a webhook configuration is missing.

    Raises UnreadableError for wrong usage or unreadable input, and ClusterError.
    """
    if arguments.out is None and not arguments.secrets:
        raise output.UnreadableError("certs: no destination: give --out DIR, --secrets or both")
    return _run(issuing.issue_missing, arguments)


def rotate(arguments: argparse.Namespace) -> int:
    """Rotate once, or with --watch until stopped. Returns and raises as `issue`."""
    return _run(pkgutil.resolve_name(_WATCH) if arguments.watch else rotating.rotate, arguments)


def write_admission_configuration(arguments: argparse.Namespace) -> int:
    """Write the files by which the API server and kube-scheduler authenticate. Returns and raises as `issue`."""
    return _run(_write_admission_configuration, arguments)


def _run(action: Callable[[argparse.Namespace], Coroutine[None, None, int]], arguments: argparse.Namespace) -> int:
    try:
        for host in getattr(arguments, "host", ()):
            issuance.general_name(host)
        return asyncio.run(action(arguments))
    except OSError as error:
        reason = ": ".join(map(str, filter(None, (error.filename, error.strerror)))) or str(error)
        raise output.UnreadableError(f"certs: {reason}") from None
    except ValueError as error:
        raise output.UnreadableError(f"certs: {error}") from None


async def _write_admission_configuration(arguments: argparse.Namespace) -> int:
    """Write the files that have changed into --out. Raises ValueError where the cluster has no such certificates."""
    client = await clients.connect(kubeconfig.choose(arguments.kubeconfig))
    try:
        state = await installation.read_state(client, arguments.namespace, (inventory.CA, *inventory.CLIENTS), ())
    finally:
        await client.close()
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
    users = [admission.user(arguments.namespace), *arguments.user]
    texts = {
        "ca.crt": trust.join_bundle(state.observed.keyring.trusted).decode(),
        admission.ADMISSION: admission.configuration(directory),
        admission.KUBECONFIG: admission.kubeconfig(users, directory / "apiserver.crt", directory / "apiserver.key"),
    }
    for name, text in texts.items():
        path = out / name
        if not path.exists() or path.read_text() != text:
            files.replace(path, text.encode(), files.CERTIFICATE_MODE)
            changed.append(name)
    if arguments.output == "json":
        formats.print_json({"out": str(out), "changed": changed, "users": users})
    else:
        print(f"{out}: {', '.join(changed) if changed else 'nothing'} changed")
    return output.OK
