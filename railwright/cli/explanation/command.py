"""Runs `railwright explain`: imports the function for files, or for a pod, job or gang."""

import argparse
import os
import re
from collections.abc import Sequence

from railwright.cli import output
from railwright.fabric.workloads import registry

_POD = ("pod", "pods", "po")  # as for kubectl; write ./pod for a file of this name
_GROUPS = ("job", "gang")  # of which one pod is explained
# KIND/NAME or KIND.GROUP/NAME, as kubectl writes it
_OBJECT = re.compile(r"[a-z]+(?:\.[a-z0-9.-]+)?/[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)  # without a dot, which a manifest's name has
_SHORT_NAMES = ("deploy", "ds", "lws", "rc", "rs", "sts", "vcjob", "vj")  # of kinds, as for kubectl
_KINDS = {word: kind.name for kind in registry.KINDS for word in (kind.name.lower(), kind.plural)}
_WORDS = frozenset(_KINDS).union(_POD, _GROUPS, _SHORT_NAMES)
# Kinds whose controller creates other objects, and the kind of these: pods have their names
_CREATED = {"CronJob": "Job", "RayJob": "RayCluster", "RayService": "RayCluster", "PodCliqueSet": "PodClique"}


def explain(arguments: argparse.Namespace) -> int:
    """Return the exit code of the form of the command. Raise UnreadableError and ClusterError."""
    if (subject := find_pod(arguments)) is not None:
        from railwright.cli.explanation import pod

        return pod.explain(arguments, *subject)
    from railwright.cli.explanation import manifest

    return manifest.explain(arguments)


def find_pod(arguments: argparse.Namespace) -> tuple[str, str] | None:
    """Return (kind, name) of what the arguments name; the kind is "" for a pod. Return None if they name files.

    The kind is `gang` or that of a workload. Raises UnreadableError if the arguments name both an object and files.
    """
    words: Sequence[str] = arguments.files or [""]
    word, others = words[0], words[1:]
    kind, slash, name = word.partition("/")
    kind = kind.lower()
    base = kind.partition(".")[0] if slash else kind  # without the group; a word without / may be pod.yaml
    is_pod, is_file = kind in _POD, os.path.exists(word)  # noqa: PTH110 - as given
    if base in _WORDS and others and not slash and (is_pod or not is_file):  # KIND NAME, as for kubectl
        slash, name, others = "/", others[0], others[1:]
    is_object = slash and (_OBJECT.fullmatch(f"{kind}/{name}") or (base in _GROUPS and name))
    if not is_pod and (is_file or not is_object):
        _reject_options(arguments, ("token_file",), "explain pod/NAME")
        if _NAME.fullmatch(word) and not is_file:
            raise output.UnreadableError(
                f"{word}: No such file or directory; for an object of the cluster give KIND/NAME, as job/NAME"
            )
        return None
    if others:
        raise output.UnreadableError(
            f"explain {kind}/{name} {' '.join(others)}: give one pod, as pod/NAME -n NAMESPACE"
        )
    _reject_options(arguments, ("policy", "snapshot", "filename", "recursive"), "explain FILE")
    if base not in _WORDS:
        raise output.UnreadableError(
            f"explain {kind}/{name}: {base} is no kind of workload that railwright knows, and there is no such file; "
            f"give job/{name} for a job of any kind"
        )
    if created := _CREATED.get(_KINDS.get(base, "")):
        raise output.UnreadableError(
            f"explain {kind}/{name}: a {_KINDS[base]} creates objects of kind {created}, which have the pods; give "
            "one of them as job/NAME"
        )
    return ("" if base in _POD else base, name)


def _reject_options(arguments: argparse.Namespace, given: Sequence[str], form: str) -> None:
    """Raise UnreadableError if options are given that only `form` of the command has."""
    present = [f"--{option.replace('_', '-')}" for option in given if getattr(arguments, option)]
    if present:
        raise output.UnreadableError(f"{', '.join(present)}: only `{form}` has it; leave it out")
