"""Rules about the names of variables: those that the image's NCCL does not read."""

from collections.abc import Callable, Iterator

from railwright.fabric.lint import rule_types
from railwright.fabric.nccl import catalogue

_NOTHING = frozenset({None, "none", "none known"})  # words of the catalogue for a variable without a replacement
# NVIDIA's NGC images and those named after it hold HPC-X, which brings the SHARP plugin (NCCL release notes, NGC).
_SHARP = "Mellanox/nccl-rdma-sharp-plugins"
_WITH_SHARP = ("nvcr.io/nvidia/", "hpcx", "hpc-x")
# Google's plugins come from a DaemonSet or an init container: where manifests mount them (GoogleCloudPlatform/
# container-engine-accelerators, AI-Hypercomputer/gpu-recipes).
_OF_GOOGLE = "GoogleCloudPlatform/container-engine-accelerators"
_MOUNTS_OF_GOOGLE = ("/usr/local/gib", "/usr/local/nvidia", "/usr/local/nccl-plugin")
_OF_NCCL = frozenset({"core", "core-newer"})  # plugins and contributions have releases of their own


def _check_unknown(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if setting.name in ranks.own_names or ranks.has_hidden_names:
        return
    if setting.origin is rule_types.Origin.FILE and _has_extra_words(setting.name):
        name = rule_types.quote((setting.name.split() or [""])[-1])
        yield f"the file's lines are taken as they are; write {name}=VALUE"
    elif _is_unknown(setting.name):
        yield f"NCCL knows no such name and ignores it; {_suggest_name(setting.name)}"


def _has_extra_words(name: str) -> bool:
    return name != name.strip().removeprefix("export ")


def _is_unknown(name: str) -> bool:
    return name[: len(catalogue.PREFIX)].upper() == catalogue.PREFIX and catalogue.find(name) is None


def _suggest_name(name: str) -> str:
    if catalogue.find(name.upper()) is not None:
        return f"write {name.upper()} in upper case"
    near = catalogue.suggest_name(name)
    return f"did you mean {near}?" if near else "remove it, or correct its spelling"


def _check_removed(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    row = catalogue.get(setting.name)
    if ranks.nccl is None or row.until is None or ranks.nccl > row.until:
        when = f"after {row.last_seen}" if row.last_seen else "any more"
        advice = f"use {row.deprecated_by}" if row.deprecated_by else "remove it: there is no replacement"
        yield f"NCCL does not read this {when}; {advice}"


def _check_invented(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    if setting.name not in ranks.own_names:
        yield f"no NCCL ever read this; {_suggest_replacement(catalogue.get(setting.name).deprecated_by)}"


def _suggest_replacement(replacement: str | None) -> str:
    if replacement is None or replacement in _NOTHING:
        return "remove it"
    return replacement if replacement.startswith("unset ") else f"use {replacement}"


def _check_framework(setting: rule_types.Setting, _: rule_types.RankContext) -> Iterator[str]:
    yield f"PyTorch renamed this, and NCCL never read it; use {catalogue.get(setting.name).deprecated_by}"


def _check_plugin(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    owner = catalogue.get(setting.name).owner
    is_in_image = owner == _SHARP and any(word in (ranks.image or "") for word in _WITH_SHARP)
    is_mounted = owner == _OF_GOOGLE and any(path.startswith(_MOUNTS_OF_GOOGLE) for path in ranks.mounts)
    if not is_in_image and not is_mounted:
        yield f"only {owner} reads this; it has no effect unless the image has it"


def _is_of_some_release(name: str) -> bool:
    row = catalogue.find(name)
    return row is not None and row.component in _OF_NCCL and row.since is not None


def _check_newer(setting: rule_types.Setting, ranks: rule_types.RankContext) -> Iterator[str]:
    row = catalogue.get(setting.name)
    if ranks.nccl is None and row.status != "newer":
        return
    if row.since is not None and (ranks.nccl is None or ranks.nccl < row.since):
        needed = ".".join(map(str, row.since))
        here = "NCCL here is " + ".".join(map(str, ranks.nccl)) if ranks.nccl else "most images are older"
        yield f"only NCCL {needed} and newer read this, {here}; update it or remove this"


def _check_deprecated(setting: rule_types.Setting, _: rule_types.RankContext) -> Iterator[str]:
    """Suggest the last one of several successors, which is the current one."""
    successor = (catalogue.get(setting.name).deprecated_by or "").rpartition("/")[2].strip()
    yield f"is deprecated; {f'use {successor}' if successor.startswith(catalogue.PREFIX) else 'remove it'}"


def _has_status(status: catalogue.Status) -> Callable[[str], bool]:
    """Return a function that recognizes the variables with a status in the catalogue."""
    return lambda name: (row := catalogue.find(name)) is not None and row.status == status


RULES = (
    rule_types.Rule("N01", lambda name: _is_unknown(name) or _has_extra_words(name), _check_unknown),
    rule_types.Rule("N02", _has_status("removed"), _check_removed),
    rule_types.Rule("N03", _has_status("unknown"), _check_invented),
    rule_types.Rule("N04", _has_status("framework"), _check_framework),
    rule_types.Rule("N05", _has_status("plugin"), _check_plugin),
    rule_types.Rule("N06", _is_of_some_release, _check_newer),
    rule_types.Rule("N60", _has_status("deprecated"), _check_deprecated),
)
