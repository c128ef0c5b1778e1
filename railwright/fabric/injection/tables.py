"""The variables of a fabric, made once a policy and looked up for each pod.

Owns the order (literals, then what is derived) and that literals beat derived values. A cache of pure results: with
another policy document it starts anew.
"""

from collections.abc import Mapping, Sequence

import msgspec

from railwright.fabric.injection import model
from railwright.fabric.nccl import conf, derive, libraries
from railwright.fabric.nccl import model as nccl
from railwright.fabric.policy import model as policies

HCA = "NCCL_IB_HCA"
# Literals that name an interface of the pod's own network namespace, which a pod on the host's network has not.
_INTERFACES = frozenset({"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"})
_KEPT = 1024  # results; a policy has few fabrics, but a pod's rails may be any subset
_POLICIES = 2  # the one in force, and the one that a test or a comparison uses beside it


class Setting(msgspec.Struct, frozen=True, eq=False):
    """A variable as a change of a pod names it. Known by identity: made once a table, looked up for every pod."""

    name: str
    value: str
    entry: str  # in the record
    reason: str


class Settings(msgspec.Struct, frozen=True):
    """The variables of a rank: all, and parted by whether a file can carry them."""

    all: tuple[Setting, ...]
    carried: tuple[Setting, ...]
    others: tuple[Setting, ...]
    text: str  # the file of those it can carry
    beside: tuple[Setting, ...]  # of libraries that a container may show it uses; no file carries these
    reasons: model.Reasons  # of all and of `beside`


_Key = tuple[str, tuple[str, ...], tuple[str, ...] | None, bool]


class Tables:
    """What the variables of pods are under one policy document."""

    def __init__(self, document: policies.FabricPolicy) -> None:
        self.document = document
        self._ranks: dict[_Key, Settings] = {}

    def rank(
        self, name: str, rails: Sequence[policies.Rail], devices: tuple[str, ...] | None, *, host_network: bool
    ) -> Settings:
        """Literals and derived variables of a rank."""
        key = (name, tuple([rail.name for rail in rails]), devices, host_network)
        found = self._ranks.get(key)
        if found is None:
            if len(self._ranks) >= _KEPT:
                self._ranks.clear()
            fabric, interface = self.document.fabrics[name], self.document.primary_interface
            derived = derive.derive(fabric, rails, devices, interface, host_network)
            beside = derive.beside(fabric, rails, devices, interface, host_network)
            found = _settings(_literals(fabric, name, host_network=host_network), derived, beside, fabric.env)
            self._ranks[key] = found
        return found


def setting(variable: nccl.Variable) -> Setting:
    """A variable with the words of its change."""
    reason = f"{variable.reason} ({variable.source})"
    return Setting(variable.name, variable.value, f"env.{variable.name}", reason)


def _settings(
    literals: Sequence[nccl.Variable],
    derived: Sequence[nccl.Variable],
    beside: Sequence[nccl.Variable],
    env: Mapping[str, str],
) -> Settings:
    """`env` are the policy's literals, used or not: they beat what is derived, and show libraries to every rank."""
    shown = libraries.shown(env)
    free = [each for each in beside if env.keys().isdisjoint({each.name, *libraries.TWINS.get(each.name, ())})]
    always = [each for each in free if libraries.library_of(each.name) in shown]
    every = [setting(each) for each in (*literals, *(each for each in derived if each.name not in env), *always)]
    rest = [setting(each) for each in free if each not in always]
    carried = [each for each in every if conf.carries(each.name) and conf.fits(each.name, each.value)]
    return Settings(
        all=tuple(every),
        carried=tuple(carried),
        others=tuple(each for each in every if each not in carried),
        text=text(carried),
        beside=tuple(rest),
        reasons=model.Reasons({each.entry: each.reason for each in (*every, *rest)}),
    )


def text(settings: Sequence[Setting]) -> str:
    """The file of settings that it can carry."""
    return conf.emit((each.name, each.value) for each in settings)


def _literals(fabric: policies.Fabric, name: str, *, host_network: bool) -> list[nccl.Variable]:
    """The policy's own; on the host network none that names an interface of the pod (ruling 11)."""
    reason = "the policy says so"
    return [
        nccl.Variable(key, value, reason, f"fabrics.{name}.env")
        for key, value in fabric.env.items()
        if not (host_network and key in _INTERFACES)
    ]


_cache: list[Tables] = []


def of(document: policies.FabricPolicy) -> Tables:
    """The tables of a document; the same ones while the document is the same object."""
    for tables in _cache:
        if tables.document is document:
            return tables
    tables = Tables(document)
    _cache.insert(0, tables)
    del _cache[_POLICIES:]
    return tables
