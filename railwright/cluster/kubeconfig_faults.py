"""Finds the problem of an unusable kubeconfig and its fix, by reading it again.

The library that reads kubeconfigs raises arbitrary exceptions for many mistakes, so the files are inspected here
after a failure. Runs no credential plugin.
"""

import base64
import binascii
import os
import pathlib
import re
import shutil
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib import parse

import yaml

from railwright.cluster import errors, failures

_SECTIONS = {"clusters": "cluster", "contexts": "context", "users": "user"}
_FETCH = "fetch the kubeconfig again, or correct it: kubectl config view shows it"
_EXIT = re.compile(r"process returned (?P<code>-?\d+)(?:\. (?P<words>.*))?", re.DOTALL)


class _Fault(Exception):  # noqa: N818 - ends the search, and never leaves this module
    def __init__(self, reason: str, fix: str = _FETCH) -> None:
        super().__init__(reason)
        self.reason, self.fix = reason, fix


class _Entry(NamedTuple):
    """A named entry of a kubeconfig, and the directory of its relative paths."""

    name: str
    tree: Mapping[str, Any]
    folder: pathlib.Path


class _Merged(NamedTuple):
    """Several files merged as kubectl does: the first entry of a name counts."""

    sections: Mapping[str, Mapping[str, _Entry]]
    current: str


def unusable(kubeconfig: str | None, context: str | None, error: BaseException | None) -> errors.ConfigurationError:
    """Return the error for a kubeconfig, or for a pod's account (None), that failed with `error`."""
    if kubeconfig is None:
        reason, fix = "there is no service account of a pod to use", "give --kubeconfig FILE outside a cluster"
        return errors.ConfigurationError(f"in-cluster account: {reason}", reason=reason, fix=fix)
    try:
        _look(kubeconfig, context, error)
        reason, fix = f"cannot be used{_words(error)}", _FETCH
    except _Fault as fault:
        reason, fix = fault.reason, fault.fix
    return _told(kubeconfig, reason, fix)


def check(kubeconfig: str, context: str | None) -> None:
    """Raise ConfigurationError for a missing context, cluster, user or address, which loaders do not all report."""
    try:
        for key, entry in _named(_merged([path for path in _paths(kubeconfig) if path.exists()]), context).items():
            if key == "cluster":
                _address(entry)
    except _Fault as fault:
        raise _told(kubeconfig, fault.reason, fault.fix) from None


def _told(kubeconfig: str, reason: str, fix: str) -> errors.ConfigurationError:
    reason = f"kubeconfig {kubeconfig}: {reason}"
    return errors.ConfigurationError(f"{reason}; {fix}", reason=reason, fix=fix)


def _words(error: BaseException | None) -> str:
    told = failures.quotable(str(error)) if error is not None else ""
    return f": {told}" if told else ""


def _paths(kubeconfig: str) -> list[pathlib.Path]:
    return [pathlib.Path(each).expanduser() for each in kubeconfig.split(os.pathsep) if each]


def _look(kubeconfig: str, context: str | None, error: BaseException | None) -> None:
    """Raise _Fault for the first problem."""
    if isinstance(error, TimeoutError):
        raise _Fault(
            "its credential plugin does not end", "run the plugin by hand: it may be waiting for you to log in"
        )
    if not any(path.exists() for path in _paths(kubeconfig)):
        raise _Fault("does not exist", "give --kubeconfig FILE, or set KUBECONFIG to a file that exists")
    for key, entry in _named(_merged([path for path in _paths(kubeconfig) if path.exists()]), context).items():
        judge = _cluster if key == "cluster" else _user
        judge(entry, error)


def _named(merged: _Merged, chosen: str | None) -> Mapping[str, _Entry]:
    """Return the cluster, and the user if any, of the selected context."""
    found: dict[str, _Entry] = {}
    entry = _context(merged, chosen)
    for key, section in (("cluster", "clusters"), ("user", "users")):
        wanted = entry.tree.get(key)
        if wanted is None and key == "user":
            continue
        if wanted not in merged.sections[section]:
            known = _list(merged.sections[section])
            raise _Fault(
                f"context {entry.name} names {key} {wanted or '(none)'}, which is not in it ({section}: {known})"
            )
        found[key] = merged.sections[section][str(wanted)]
    return found


def _merged(paths: Sequence[pathlib.Path]) -> _Merged:
    sections: dict[str, dict[str, _Entry]] = {section: {} for section in _SECTIONS}
    current = ""
    for path in paths:
        tree = _tree(path)
        current = current or str(tree.get("current-context") or "")
        for section, key in _SECTIONS.items():
            for item in _items(tree, section):
                entry = _Entry(str(item["name"]), item.get(key) or {}, path.parent)
                if not isinstance(entry.tree, Mapping):
                    raise _Fault(f"{section}: {entry.name} has no mapping `{key}`")
                sections[section].setdefault(entry.name, entry)
    return _Merged(sections, current)


def _tree(path: pathlib.Path) -> Mapping[str, Any]:
    try:
        text = path.read_bytes().decode()
        tree = yaml.safe_load(text)
    except OSError as error:
        raise _Fault((error.strerror or "cannot be read").lower(), "give --kubeconfig FILE that you may read") from None
    except UnicodeDecodeError:
        raise _Fault("is not UTF-8 text, so it is no kubeconfig") from None
    except (yaml.YAMLError, RecursionError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise _Fault(f"is not valid YAML{where}{f': {problem}' if problem else ''}") from None
    if tree is None:
        raise _Fault("is empty")
    if not isinstance(tree, Mapping):
        raise _Fault("is no kubeconfig: a mapping with clusters, contexts and users is expected")
    return tree


def _items(tree: Mapping[str, Any], section: str) -> Sequence[Mapping[str, Any]]:
    items = tree.get(section) or []
    if not isinstance(items, list) or not all(isinstance(each, Mapping) and each.get("name") for each in items):
        raise _Fault(f"{section} is not a list of named entries")
    return items


def _context(merged: _Merged, chosen: str | None) -> _Entry:
    contexts = merged.sections["contexts"]
    if not (name := chosen or merged.current):
        fix = f"choose one: kubectl config use-context NAME (there are: {_list(contexts)})"
        raise _Fault("no current-context is set", fix)
    if name not in contexts:
        what = f"there is no context {name}" if chosen else f"its current-context {name} is not in it"
        raise _Fault(what, f"choose one that is there: {_list(contexts)}")
    return contexts[name]


def _list(found: Mapping[str, Any]) -> str:
    return ", ".join(sorted(found)) or "none"


# --- what a context names ---------------------------------------------------------------------------------


def _cluster(entry: _Entry, _error: BaseException | None) -> None:
    _address(entry)
    where = f"cluster {entry.name}"
    text = _material(entry, where, "certificate-authority")
    if text is not None:
        try:
            ssl.create_default_context(cadata=text.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise _Fault(f"certificate-authority of {where} is no PEM certificate") from None


def _address(entry: _Entry) -> None:
    server = entry.tree.get("server")
    where = f"cluster {entry.name}"
    if not server:
        raise _Fault(f"{where} has no `server:`")
    try:
        address = parse.urlsplit(str(server))
        sound = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:
        sound = False
    if not sound:
        raise _Fault(f"`server: {server}` of {where} is no address: https://HOST:PORT is expected")


def _user(entry: _Entry, error: BaseException | None) -> None:
    where = f"user {entry.name}"
    for key in ("client-certificate", "client-key"):
        text = _material(entry, where, key)
        if text is not None and b"-----BEGIN" not in text:
            raise _Fault(f"{key} of {where} is not PEM")
    token_file = entry.tree.get("tokenFile")
    if token_file and not (entry.folder / str(token_file)).is_file():
        raise _Fault(f"token file {token_file} of {where} does not exist")
    plugin = entry.tree.get("exec")
    if isinstance(plugin, Mapping):
        _plugin(where, plugin, error)


def _material(entry: _Entry, where: str, key: str) -> bytes | None:
    """Return the PEM text under `key`, from the file or the data; None if the key is absent."""
    data, path = entry.tree.get(f"{key}-data"), entry.tree.get(key)
    if data:
        try:
            return base64.b64decode("".join(str(data).split()), validate=True)
        except (binascii.Error, ValueError):
            raise _Fault(f"{key}-data of {where} is not base64") from None
    if not path:
        return None
    try:
        return (entry.folder / str(path)).read_bytes()
    except OSError as error:
        raise _Fault(f"{key} {path} of {where}: {(error.strerror or 'cannot be read').lower()}") from None


def _plugin(where: str, plugin: Mapping[str, Any], error: BaseException | None) -> None:
    command = str(plugin.get("command") or "")
    if not command:
        raise _Fault(f"exec of {where} has no `command:`")
    if shutil.which(command) is None:
        hint = failures.quotable(str(plugin.get("installHint") or ""))
        fix = hint or "install it, or use a kubeconfig that does not need it"
        raise _Fault(f"credential plugin {command} of {where} is not installed, or not on PATH", fix)
    if error is None or not str(error).startswith("exec:"):
        return
    line = " ".join([command, *map(str, plugin.get("args") or ())])
    fix = f"run it by hand to see why, and log in again: {line}"
    if (ended := _EXIT.search(str(error))) is None:
        raise _Fault(f"credential plugin {command} of {where} does not print an ExecCredential as it should", fix)
    told = failures.quotable(ended["words"] or "")
    raise _Fault(f"credential plugin {command} of {where} ends with code {ended['code']}{told and f': {told}'}", fix)
