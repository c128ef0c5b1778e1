"""Reads kubeconfig files as kubectl does: finds and merges them, and selects a context.

Knows nothing of connections; `credentials` makes an account of what a context selects.
"""

import base64
import binascii
import contextlib
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib import parse

import yaml

_SECTIONS = {"clusters": "cluster", "contexts": "context", "users": "user"}
_FETCH = "fetch the kubeconfig again, or correct it: kubectl config view shows it"
MISTYPED = (ValueError, TypeError, AttributeError, LookupError)  # for values of other types than they should have


class KubeconfigError(Exception):
    """A kubeconfig cannot be used, with the reason and the fix. The reason does not name the file."""

    def __init__(self, reason: str, fix: str = _FETCH) -> None:
        super().__init__(reason)
        self.reason, self.fix = reason, fix


class Entry(NamedTuple):
    """A cluster, context or user: its name, its values, and the directory of its relative paths."""

    name: str
    tree: Mapping[str, Any]
    folder: pathlib.Path
    where: str  # such as `cluster prod`, for messages

    def read_pem(self, key: str) -> bytes | None:
        """Return the PEM text of the data or file of `key`; None if both are absent. Raises KubeconfigError."""
        data, path = self.tree.get(f"{key}-data"), self.tree.get(key)
        if data:
            try:
                text = base64.b64decode("".join(str(data).split()), validate=True)
            except (binascii.Error, ValueError):
                raise KubeconfigError(f"{key}-data of {self.where} is not base64") from None
        elif path:
            try:
                text = (self.folder / str(path)).read_bytes()
            except OSError as error:
                reason = (error.strerror or "cannot be read").lower()
                raise KubeconfigError(f"{key} {path} of {self.where}: {reason}") from None
        else:
            return None
        if b"-----BEGIN" not in text:
            raise KubeconfigError(f"{key} of {self.where} is not PEM")
        return text


class Selection(NamedTuple):
    """The cluster and user that a context selects."""

    cluster: Entry
    user: Entry | None


def find() -> str | None:
    """Return the existing files that kubectl would merge, joined by os.pathsep; None if none exists."""
    return os.pathsep.join(map(str, _list_existing(os.pathsep.join(list_names())))) or None


def list_names() -> list[str]:
    """Return the files that kubectl would merge, whether they exist or not."""
    names = [name for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
    return names or ["~/.kube/config"]


def select(kubeconfig: str, context: str | None) -> Selection:
    """Return what a context selects, by default the current one, in files joined by os.pathsep.

    Raises KubeconfigError.
    """
    paths = _list_existing(kubeconfig)
    if not paths:
        raise KubeconfigError("does not exist", "give --kubeconfig FILE, or set KUBECONFIG to a file that exists")
    sections, current = _merge_files(paths)
    entry = _find_context(sections["contexts"], context, current)
    cluster = _find_target(sections, entry, "cluster")
    _check_connection(cluster)
    return Selection(cluster, _find_target(sections, entry, "user") if entry.tree.get("user") is not None else None)


def find_namespace(kubeconfig: str, context: str | None) -> str:
    """Return the namespace of a context of `kubeconfig`, or of the user's own files for "". Without one, `default`.

    Never raises: the connection reports what is wrong.
    """
    with contextlib.suppress(KubeconfigError, *MISTYPED):
        sections, current = _merge_files(_list_existing(kubeconfig or find() or ""))
        return str(_find_context(sections["contexts"], context, current).tree.get("namespace") or "default")
    return "default"


def _list_existing(kubeconfig: str) -> list[pathlib.Path]:
    paths = [pathlib.Path(item).expanduser() for item in kubeconfig.split(os.pathsep) if item]
    return [path for path in paths if path.exists()]


def _merge_files(paths: Sequence[pathlib.Path]) -> tuple[Mapping[str, Mapping[str, Entry]], str]:
    """Return the entries by section and name, and the current context. The first file that has one counts."""
    sections: dict[str, dict[str, Entry]] = {section: {} for section in _SECTIONS}
    current = ""
    for path in paths:
        tree = _read_tree(path)
        current = current or str(tree.get("current-context") or "")
        for section, key in _SECTIONS.items():
            for item in _list_items(tree, section):
                name, values = str(item["name"]), item.get(key)
                sections[section].setdefault(name, Entry(name, values, path.parent, f"{key} {name}"))
    return sections, current


def _read_tree(path: pathlib.Path) -> Mapping[str, Any]:
    try:
        # not by libyaml, which has no limit for nested values
        tree = yaml.load(path.read_bytes().decode(), Loader=yaml.SafeLoader)
    except OSError as error:
        reason = (error.strerror or "cannot be read").lower()
        raise KubeconfigError(reason, "give --kubeconfig FILE that you may read") from None
    except UnicodeDecodeError:
        raise KubeconfigError("is not UTF-8 text, so it is no kubeconfig") from None
    except (yaml.YAMLError, RecursionError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        where = f" in line {mark.line + 1}" if mark else ""
        raise KubeconfigError(f"is not valid YAML{where}{f': {problem}' if problem else ''}") from None
    if tree is None:
        raise KubeconfigError("is empty")
    if not isinstance(tree, Mapping):
        raise KubeconfigError("is no kubeconfig: a mapping with clusters, contexts and users is expected")
    return tree


def _list_items(tree: Mapping[str, Any], section: str) -> Sequence[Any]:
    items = tree.get(section) or []
    if not isinstance(items, list) or not all(isinstance(item, Mapping) and item.get("name") for item in items):
        raise KubeconfigError(f"{section} is not a list of named entries")
    return items


def _find_context(contexts: Mapping[str, Entry], context: str | None, current: str) -> Entry:
    if not contexts:
        raise KubeconfigError("has no contexts", "give the kubeconfig of a cluster")
    if not (name := context or current):
        fix = f"choose one: kubectl config use-context NAME (there are: {_join_names(contexts)})"
        raise KubeconfigError("no current-context is set", fix)
    if name in contexts:
        return _require_tree(contexts[name], "contexts")
    what = f"there is no context {name}" if context else f"its current-context {name} is not in it"
    raise KubeconfigError(what, f"choose one that is there: {_join_names(contexts)}")


def _find_target(sections: Mapping[str, Mapping[str, Entry]], context: Entry, key: str) -> Entry:
    """Return the cluster or user that a context names."""
    section = f"{key}s"
    target = context.tree.get(key)
    if target is None or str(target) not in sections[section]:
        raise KubeconfigError(
            f"context {context.name} names {key} {target or '(none)'}, which is not in it "
            f"({section}: {_join_names(sections[section])})"
        )
    return _require_tree(sections[section][str(target)], section)


def _require_tree(entry: Entry, section: str) -> Entry:
    if not isinstance(entry.tree, Mapping):
        raise KubeconfigError(f"{section}: {entry.name} has no mapping `{_SECTIONS[section]}`")
    return entry


def _join_names(entries: Mapping[str, Any]) -> str:
    return ", ".join(sorted(entries)) or "none"


def _check_connection(cluster: Entry) -> None:
    """Raise KubeconfigError for an address that no request can use."""
    server, proxy, name = (cluster.tree.get(key) for key in ("server", "proxy-url", "tls-server-name"))
    where = cluster.where
    if not server:
        raise KubeconfigError(f"{where} has no `server:`")
    if not _is_address(server):
        raise KubeconfigError(
            f"`server: {_hide_login(server)}` of {where} is no address: https://HOST:PORT is expected"
        )
    if _hide_login(server) != server:
        raise KubeconfigError(
            f"`server: {_hide_login(server)}` of {where} has a user name or password in it",
            "remove it there, and write it as `username` and `password` of the user",
        )
    if proxy and not _is_address(proxy):
        raise KubeconfigError(
            f"`proxy-url` of {where} is not the address of an HTTP proxy: http://HOST:PORT is expected"
        )
    if name and not isinstance(name, str):
        raise KubeconfigError(f"`tls-server-name: {name}` of {where} is not a name")


def _is_address(url: object) -> bool:
    """Return whether a value is the URL of an HTTP server with a valid port."""
    try:
        address = parse.urlsplit(url) if isinstance(url, str) else parse.urlsplit("")
        return address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:
        return False


def _hide_login(url: object) -> str:
    """Return a URL without user name and password, which must not be printed."""
    return re.sub(r"//[^/]*@", "//", str(url))
