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
_OBJECT = re.compile(r"([A-Za-z]+)(?:\.[a-z0-9.-]+)?/([a-z0-9](?:[-a-z0-9]*[a-z0-9])?)", re.ASCII)
_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?", re.ASCII)  # without a dot, which a manifest's name has
_SHORT_NAMES = ("deploy", "ds", "lws", "rc", "rs", "sts", "vcjob", "vj")  # of kinds, as for kubectl
# The words for a kind, and the kind's name where it is known
_KINDS = dict.fromkeys((*_POD, *_GROUPS, *_SHORT_NAMES), "") | {
    word: kind.name for kind in registry.KINDS for word in (kind.name.lower(), kind.plural)
}
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
    words = _join_kind([*map(_lower_kind, arguments.files[:1]), *arguments.files[1:]])
    kind, slash, name = words[0].partition("/") if words else ("", "", "")
    form = _find_form(words[0]) if slash else ""
    if kind not in _POD and not form:
        _reject(arguments, ("token_file",), "explain pod/NAME")
        if words and _NAME.fullmatch(words[0]) and not os.path.exists(words[0]):  # noqa: PTH110 - as given
            raise output.UnreadableError(
                f"{words[0]}: No such file or directory; for an object of the cluster give KIND/NAME, as job/NAME"
            )
        return None
    names = [name, *words[1:]] if slash else []
    if len(names) > 1:
        raise output.UnreadableError(f"explain {' '.join(words)}: give one pod, as pod/NAME -n NAMESPACE")
    _reject(arguments, ("policy", "snapshot", "filename", "recursive"), "explain FILE")
    return form, names[0] if names else ""


def _lower_kind(word: str) -> str:
    """Return KIND or KIND/NAME with the kind in lower case, another word and a file as it is."""
    kind, slash, name = word.partition("/")
    is_kind = kind.partition(".")[0].lower() in _KINDS
    return f"{kind.lower()}{slash}{name}" if is_kind and not os.path.exists(word) else word  # noqa: PTH110 - as given


def _join_kind(words: Sequence[str]) -> Sequence[str]:
    """Return the words with `KIND NAME` as KIND/NAME, because kubectl has both forms."""
    if len(words) < 2 or words[0] not in _KINDS or (words[0] not in _POD and os.path.exists(words[0])):  # noqa: PTH110
        return words
    return [f"{words[0]}/{words[1]}", *words[2:]]


def _find_form(word: str) -> str:
    """Return the kind in KIND/NAME: `gang`, or a kind of workloads; "" for another word, and for a file.

    Raises UnreadableError for an unknown kind, and for one whose pods belong to other objects that it creates.
    """
    kind, _, name = word.partition("/")
    named = _OBJECT.fullmatch(word)
    if os.path.exists(word) or not (named or (kind in _GROUPS and name)):  # noqa: PTH110 - as given
        return ""
    kind = kind.partition(".")[0]
    if created := _CREATED.get(_KINDS.get(kind, "")):
        raise output.UnreadableError(
            f"explain {word}: a {_KINDS[kind]} creates objects of kind {created}, which have the pods; give job/NAME "
            "of one of these"
        )
    if kind in _KINDS:
        return "" if kind in _POD else kind
    raise output.UnreadableError(
        f"explain {word}: {kind} is no kind of workload that railwright knows, and there is no such file; give "
        f"job/{name} for a job of any kind"
    )


def _reject(arguments: argparse.Namespace, given: Sequence[str], form: str) -> None:
    """Raise UnreadableError if options are given that only `form` of the command has."""
    present = [f"--{option.replace('_', '-')}" for option in given if getattr(arguments, option)]
    if present:
        raise output.UnreadableError(f"{', '.join(present)}: only for `{form}`")
