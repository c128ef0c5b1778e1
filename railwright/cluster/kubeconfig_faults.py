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


def explain_unusable(
    kubeconfig: str | None, context: str | None, error: BaseException | None
) -> errors.ConfigurationError:
    """Return the error for a kubeconfig, or for a pod's account (None), that failed with `error`."""
    if kubeconfig is None:
        reason, fix = "there is no service account of a pod to use", "give --kubeconfig FILE outside a cluster"
        return errors.ConfigurationError(f"in-cluster account: {reason}", reason=reason, fix=fix)
    try:
        _raise_fault(kubeconfig, context, error)
        reason, fix = f"cannot be used{_format_cause(error)}", _FETCH
    except _Fault as fault:
        reason, fix = fault.reason, fault.fix
    return _build_error(kubeconfig, reason, fix)


def check(kubeconfig: str, context: str | None) -> Mapping[str, Any]:
    """Return the user of the context, {} without one.

    Raises ConfigurationError for a missing context, cluster, user or address, which loaders do not all report.
    """
    try:
        entries = _find_entries(_merge_files([path for path in _split_paths(kubeconfig) if path.exists()]), context)
        _check_connection(entries["cluster"])
        return entries["user"].tree if "user" in entries else {}
    except _Fault as fault:
        raise _build_error(kubeconfig, fault.reason, fault.fix) from None


def _build_error(kubeconfig: str, reason: str, fix: str) -> errors.ConfigurationError:
    reason = f"kubeconfig {kubeconfig}: {reason}"
    return errors.ConfigurationError(f"{reason}; {fix}", reason=reason, fix=fix)


def _format_cause(error: BaseException | None) -> str:
    detail = failures.quote_message(str(error)) if error is not None else ""
    return f": {detail}" if detail else ""


def _split_paths(kubeconfig: str) -> list[pathlib.Path]:
    return [pathlib.Path(item).expanduser() for item in kubeconfig.split(os.pathsep) if item]


def _raise_fault(kubeconfig: str, context: str | None, error: BaseException | None) -> None:
    """Raise _Fault for the first problem."""
    if isinstance(error, TimeoutError):
        raise _Fault(
            "its credential plugin does not end", "run the plugin by hand: it may be waiting for you to log in"
        )
    if not any(path.exists() for path in _split_paths(kubeconfig)):
        raise _Fault("does not exist", "give --kubeconfig FILE, or set KUBECONFIG to a file that exists")
    for key, entry in _find_entries(
        _merge_files([path for path in _split_paths(kubeconfig) if path.exists()]), context
    ).items():
        check_entry = _check_cluster if key == "cluster" else _check_user
        check_entry(entry, error)


def _find_entries(merged: _Merged, context_name: str | None) -> Mapping[str, _Entry]:
    """Return the cluster, and the user if any, of the selected context."""
    entries: dict[str, _Entry] = {}
    entry = _find_context(merged, context_name)
    for key, section in (("cluster", "clusters"), ("user", "users")):
        target = entry.tree.get(key)
        if target is None and key == "user":
            continue
        if target is None or str(target) not in merged.sections[section]:
            names = _join_names(merged.sections[section])
            raise _Fault(
                f"context {entry.name} names {key} {target or '(none)'}, which is not in it ({section}: {names})"
            )
        entries[key] = merged.sections[section][str(target)]
    return entries


def _merge_files(paths: Sequence[pathlib.Path]) -> _Merged:
    sections: dict[str, dict[str, _Entry]] = {section: {} for section in _SECTIONS}
    current = ""
    for path in paths:
        tree = _read_tree(path)
        current = current or str(tree.get("current-context") or "")
        for section, key in _SECTIONS.items():
            for item in _list_items(tree, section):
                entry = _Entry(str(item["name"]), item.get(key) or {}, path.parent)
                if not isinstance(entry.tree, Mapping):
                    raise _Fault(f"{section}: {entry.name} has no mapping `{key}`")
                sections[section].setdefault(entry.name, entry)
    return _Merged(sections, current)


def _read_tree(path: pathlib.Path) -> Mapping[str, Any]:
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


def _list_items(tree: Mapping[str, Any], section: str) -> Sequence[Mapping[str, Any]]:
    items = tree.get(section) or []
    if not isinstance(items, list) or not all(isinstance(item, Mapping) and item.get("name") for item in items):
        raise _Fault(f"{section} is not a list of named entries")
    return items


def _find_context(merged: _Merged, context_name: str | None) -> _Entry:
    contexts = merged.sections["contexts"]
    if not (name := context_name or merged.current):
        fix = f"choose one: kubectl config use-context NAME (there are: {_join_names(contexts)})"
        raise _Fault("no current-context is set", fix)
    if name not in contexts:
        what = f"there is no context {name}" if context_name else f"its current-context {name} is not in it"
        if not contexts:
            raise _Fault(f"{what}, nor any other", "give the kubeconfig of a cluster")
        raise _Fault(what, f"choose one that is there: {_join_names(contexts)}")
    return contexts[name]


def _join_names(entries: Mapping[str, Any]) -> str:
    return ", ".join(sorted(entries)) or "none"


# --- what a context names ---------------------------------------------------------------------------------


def _check_cluster(entry: _Entry, _error: BaseException | None) -> None:
    _check_connection(entry)
    where = f"cluster {entry.name}"
    text = _read_material(entry, where, "certificate-authority")
    if text is not None:
        try:
            ssl.create_default_context(cadata=text.decode("ascii"))
        except (ssl.SSLError, ValueError):
            raise _Fault(f"certificate-authority of {where} is no PEM certificate") from None


def _check_connection(entry: _Entry) -> None:
    server, proxy, name = (entry.tree.get(key) for key in ("server", "proxy-url", "tls-server-name"))
    where = f"cluster {entry.name}"
    if not server:
        raise _Fault(f"{where} has no `server:`")
    if not _is_address(server):
        raise _Fault(f"`server: {_hide_login(server)}` of {where} is no address: https://HOST:PORT is expected")
    if _hide_login(server) != str(server):
        raise _Fault(
            f"`server: {_hide_login(server)}` of {where} has a user name or password in it",
            "remove it there, and write it as `username` and `password` of the user",
        )
    if proxy and not _is_address(proxy):
        raise _Fault(f"`proxy-url` of {where} is not the address of an HTTP proxy: http://HOST:PORT is expected")
    if name and not isinstance(name, str):
        raise _Fault(f"`tls-server-name: {name}` of {where} is not a name")


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


def _check_user(entry: _Entry, error: BaseException | None) -> None:
    where = f"user {entry.name}"
    if not entry.tree:
        raise _Fault(f"users: {entry.name} has no mapping `user`")
    for key in ("client-certificate", "client-key"):
        text = _read_material(entry, where, key)
        if text is not None and b"-----BEGIN" not in text:
            raise _Fault(f"{key} of {where} is not PEM")
    if token_file := entry.tree.get("tokenFile"):
        _check_token_file(where, str(token_file), entry.folder)
    if "exec" in entry.tree:
        _check_plugin(where, entry.tree["exec"], error)
    if "auth-provider" in entry.tree:
        provider = entry.tree["auth-provider"]
        name = provider.get("name") if isinstance(provider, Mapping) else provider
        raise _Fault(
            f"auth-provider {name} of {where} cannot be used{_format_cause(error)}",
            "log in again, or use a credential plugin (`exec:`), which has replaced it in kubectl",
        )


def _check_token_file(where: str, name: str, folder: pathlib.Path) -> None:
    try:
        (folder / name).read_bytes().decode()
    except OSError as error:
        reason = "does not exist" if isinstance(error, FileNotFoundError) else (error.strerror or "").lower()
        raise _Fault(f"token file {name} of {where} {reason or 'cannot be read'}") from None
    except UnicodeDecodeError:
        raise _Fault(f"token file {name} of {where} is not UTF-8 text") from None


def _read_material(entry: _Entry, where: str, key: str) -> bytes | None:
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


def _check_plugin(where: str, plugin: object, error: BaseException | None) -> None:
    command = str(plugin.get("command") or "") if isinstance(plugin, Mapping) else ""
    if not isinstance(plugin, Mapping) or not command:
        raise _Fault(f"exec of {where} has no `command:`")
    for key, item in (("args", str), ("env", Mapping)):
        values = plugin.get(key) or []
        if not isinstance(values, list) or not all(isinstance(value, item) for value in values):
            entries = "texts" if item is str else "entries with `name:` and `value:`"
            raise _Fault(f"`{key}:` in exec of {where} is not a list of {entries}")
    if shutil.which(command) is None:
        hint = failures.quote_message(str(plugin.get("installHint") or ""))
        fix = hint or "install it, or use a kubeconfig that does not need it"
        raise _Fault(f"credential plugin {command} of {where} is not installed, or not on PATH", fix)
    if error is None:
        return
    line = " ".join([command, *map(str, plugin.get("args") or ())])
    fix = f"run it by hand to see why, and log in again: {line}"
    if (exit_match := _EXIT.search(str(error))) is None:
        raise _Fault(f"credential plugin {command} of {where} does not print an ExecCredential as it should", fix)
    detail = failures.quote_message(exit_match["words"] or "")
    raise _Fault(
        f"credential plugin {command} of {where} ends with code {exit_match['code']}{detail and f': {detail}'}", fix
    )
