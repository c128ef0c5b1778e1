"""`railwright certs issue`: certificates for both servers and their callers, as files, as Secrets, or both.

Owns the arguments, the order of steps and the words of the answer. Refuses to know how a certificate is built
(certs/issue), which may stay (certs/bundle) and how a cluster holds them (certs/installation).
"""

import argparse
import asyncio
import datetime as dt
import json
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import yaml
from kubernetes_asyncio import client, config

from certs import bundle, files, installation, issue
from fabric import names

NAME = "certs"
HELP = "issue certificates for the servers and their callers"

_DAYS_AUTHORITY = 3650  # ten years: replacing an authority touches every caller, so it is done on purpose
_DAYS_LEAF = 365
_LOOPBACK = ("localhost", "127.0.0.1", "::1")  # port-forward, and callers on the same host
_OK, _FINDINGS, _USAGE = 0, 1, 2


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the sub-commands and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    one = actions.add_parser("issue", help="make what is missing or ending; keep what is still good")
    one.add_argument("--out", type=pathlib.Path, metavar="DIR", help="write ca, webhook, extender, client files")
    one.add_argument("--secrets", action="store_true", help="write Secrets and fill caBundle in the cluster")
    one.add_argument("--namespace", default=names.NAMESPACE, help="of Services and Secrets (default %(default)s)")
    one.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, ~/.kube/config, or in-cluster")
    one.add_argument("--host", action="append", default=[], metavar="H", help="further name or address of servers")
    one.add_argument("--days", type=_days, default=_DAYS_LEAF, help="life of a leaf (default %(default)s)")
    one.add_argument("--authority-days", type=_days, default=_DAYS_AUTHORITY, help="default %(default)s")
    one.add_argument("-o", "--output", choices=["text", "json"], default="text")


def run(arguments: argparse.Namespace) -> int:
    """Run `certs issue`; 0 done, 1 done or refused with something to mend, 2 usage or unreadable input."""
    if arguments.out is None and not arguments.secrets:
        return _fail("nowhere to write: give --out DIR, --secrets or both")
    try:
        for host in arguments.host:
            issue.general_name(host)
        return asyncio.run(_issue(arguments))
    except client.ApiException as error:
        return _fail(_refusal(error, arguments.namespace), code=_FINDINGS)
    except aiohttp.ClientError as error:  # before OSError: a refused connection is both
        return _fail(f"the API server cannot be reached: {error}", code=_FINDINGS)
    except (ValueError, OSError, config.ConfigException) as error:
        return _fail(str(error))


async def _issue(arguments: argparse.Namespace) -> int:
    on_disk = _read_files(arguments.out) if arguments.out else {}
    if not arguments.secrets:
        held = _assemble(on_disk, arguments)
        _write_files(arguments.out, held)
        return _report(arguments, held, ())
    async with await _connect(arguments.kubeconfig) as api:
        in_cluster = await installation.read(api, arguments.namespace)
        held = _assemble(_merge(on_disk, in_cluster, arguments.out), arguments)
        pairs = {name: each.pair for name, each in held.items()}
        await installation.write(api, arguments.namespace, pairs)
        trusts = await installation.trust(
            api,
            arguments.namespace,
            authority=pairs[bundle.AUTHORITY].certificate_pem,
            hosts=_hosts("webhook", arguments),
        )
    if arguments.out:
        _write_files(arguments.out, held)
    return _report(arguments, held, trusts)


async def _connect(kubeconfig: str | None) -> client.ApiClient:
    """Connect as kubectl would; inside a pod without a kubeconfig, as its service account."""
    configuration = client.Configuration()
    try:
        await config.load_kube_config(config_file=kubeconfig, client_configuration=configuration)
    except (yaml.YAMLError, TypeError) as error:  # TypeError: the library stumbles over an empty document
        raise ValueError(f"kubeconfig {kubeconfig or ''} cannot be read: {error}") from error
    except config.ConfigException as error:
        if kubeconfig is not None:
            raise ValueError(f"kubeconfig {kubeconfig}: {error}") from error
        config.load_incluster_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    return client.ApiClient(configuration)


def _merge(
    on_disk: Mapping[str, issue.Pair], in_cluster: Mapping[str, issue.Pair], folder: pathlib.Path | None
) -> dict[str, issue.Pair]:
    """Join both stores; the cluster's wins because its servers run on it. Two authorities are a question."""
    ours, theirs = on_disk.get(bundle.AUTHORITY), in_cluster.get(bundle.AUTHORITY)
    if ours is not None and theirs is not None and ours.certificate_pem != theirs.certificate_pem:
        secret = installation.SECRETS[bundle.AUTHORITY]
        raise ValueError(
            f"{folder}/ca.crt and Secret {secret} are two different authorities; "
            "give an empty --out to keep the cluster's, or delete the Secret to replace it"
        )
    return {**on_disk, **in_cluster}


def _assemble(existing: Mapping[str, issue.Pair], arguments: argparse.Namespace) -> dict[str, bundle.Held]:
    server, caller = issue.Usage.SERVER, issue.Usage.CLIENT
    wanted = [
        bundle.Wanted("webhook", "railwright-webhook", server, _hosts("webhook", arguments)),
        bundle.Wanted("extender", "railwright-extender", server, _hosts("extender", arguments)),
    ]
    if arguments.out:  # callers outside the pods take theirs from files; no Secret holds it
        wanted.append(bundle.Wanted("client", "railwright-client", caller))
    return bundle.assemble(
        existing,
        wanted,
        now=dt.datetime.now(dt.UTC),
        authority_lifetime=dt.timedelta(days=arguments.authority_days),
        leaf_lifetime=dt.timedelta(days=arguments.days),
    )


def _hosts(server: str, arguments: argparse.Namespace) -> tuple[str, ...]:
    """Every name the Service of `server` answers to in a cluster, loopback, and what the user adds."""
    service = f"railwright-{server}"
    qualified = f"{service}.{arguments.namespace}"
    cluster = (service, qualified, f"{qualified}.svc", f"{qualified}.svc.cluster.local")
    return (*cluster, *_LOOPBACK, *arguments.host)


def _read_files(folder: pathlib.Path) -> dict[str, issue.Pair]:
    read = {name: files.read(folder, name) for name in ("ca", "webhook", "extender", "client")}
    return {name: pair for name, pair in read.items() if pair is not None}


def _write_files(folder: pathlib.Path, held: Mapping[str, bundle.Held]) -> None:
    for name, each in held.items():
        if files.read(folder, name) != each.pair:
            files.write(folder, name, each.pair)


def _report(
    arguments: argparse.Namespace, held: Mapping[str, bundle.Held], trusts: Sequence[installation.Trust]
) -> int:
    """Print what was done; 1 where a webhook configuration is missing, because nothing calls us then."""
    missing = [each.kind for each in trusts if not each.found]
    if arguments.output == "json":
        print(json.dumps(_document(arguments, held, trusts), indent=2))
    else:
        for name, each in held.items():
            print(f"{name:9} {'kept' if each.reused else 'issued':7} until {each.not_after:%Y-%m-%d}")
        for one in trusts:
            print(f"{one.kind} {installation.CONFIGURATION}: {_words(one)}")
    for kind in missing:
        print(
            f"{kind} {installation.CONFIGURATION!r} does not exist; apply the manifests, then run this again",
            file=sys.stderr,
        )
    return _FINDINGS if missing else _OK


def _document(
    arguments: argparse.Namespace, held: Mapping[str, bundle.Held], trusts: Sequence[installation.Trust]
) -> dict[str, Any]:
    return {
        "out": str(arguments.out) if arguments.out else None,
        "namespace": arguments.namespace if arguments.secrets else None,
        "certificates": [
            {
                "name": name,
                "state": "kept" if each.reused else "issued",
                "notAfter": each.not_after.isoformat(),
                "secret": installation.SECRETS.get(name) if arguments.secrets else None,
            }
            for name, each in held.items()
        ],
        "configurations": [
            {"kind": each.kind, "found": each.found, "filled": each.filled, "foreign": each.foreign} for each in trusts
        ],
    }


def _words(trust: installation.Trust) -> str:
    if not trust.found:
        return "missing"
    return f"caBundle filled for {', '.join(trust.filled)}" if trust.filled else "caBundle up to date"


def _refusal(error: client.ApiException, namespace: str) -> str:
    """Say what the API server said, and what most likely mends it."""
    try:
        said = json.loads(error.body or "")["message"]
    except (TypeError, ValueError, KeyError):
        said = error.reason
    hints = {
        403: "the user needs get, create and patch on secrets and on webhook configurations",
        404: f"create namespace {namespace} first (kubectl apply -k manifests)",
        409: "another run changed it meanwhile; run this again",
    }
    return f"the API server refused ({error.status}): {said}; {hints.get(error.status, 'nothing else was written')}"


def _days(text: str) -> int:
    days = int(text)
    if not 1 <= days <= 36500:
        raise argparse.ArgumentTypeError(f"{text} days; give 1 to 36500")
    return days


def _fail(message: str, *, code: int = _USAGE) -> int:
    print(f"railwright certs: {message}", file=sys.stderr)
    return code
