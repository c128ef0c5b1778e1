"""Tables of the variables of each fabric, built once per policy document and looked up for each pod.

Literals of the policy take precedence over derived values (docs/interface.md 2.3).
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from railwright.fabric import bounded_cache
from railwright.fabric.nccl import conf, derive, libraries
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons import rendering
from railwright.fabric.reasons.codes import VariableCode

HCA, TOPOLOGY_FILE = "NCCL_IB_HCA", "NCCL_TOPO_FILE"
_SET_BY_POLICY = reasons.make(VariableCode.SET_BY_POLICY)
# Literals that name an interface in the network namespace that the policy describes: the pod's own, or the node's.
_INTERFACES = frozenset({"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"})
# Literals that select addresses of the pod's rails. The host's addresses may be outside.
_ADDRESS_RANGES = frozenset({"NCCL_IB_ADDR_RANGE", "NVSHMEM_IB_ADDR_RANGE"})
_MAX_RESULTS = 1024  # a policy has few fabrics, but a pod may have any subset of the rails


RecordedReasons = Mapping[str, bytes]
"""Record entry -> a member of the record's object `reasons`, encoded once per table. A pod may lack the entry."""


class Setting(msgspec.Struct, frozen=True):
    """A variable with its record entry and reason. Built once per table and shared by all pods."""

    name: str
    value: str
    entry: str  # in the record
    recorded: bytes  # a member of the record's object `reasons`
    reason: str  # its text


class Settings(msgspec.Struct, frozen=True):
    """The variables of a rank, in total and by whether a file can carry them."""

    all: tuple[Setting, ...]
    file_vars: tuple[Setting, ...]
    env_only_vars: tuple[Setting, ...]
    file_text: str  # content of the file with the `file_vars`
    optional_library_vars: tuple[Setting, ...]  # for containers that use the library; a file cannot carry them
    recorded: RecordedReasons  # of `all` and `optional_library_vars`


_Key = tuple[str, tuple[str, ...], tuple[str, ...] | None, bool, str | None]


class Tables:
    """The variables of the pods under one version of the policy. Get them by `Policy.compile_once`."""

    def __init__(self, document: policies.PolicyDocument) -> None:
        self._document = document
        self._ranks: bounded_cache.BoundedCache[_Key, Settings] = bounded_cache.BoundedCache(_MAX_RESULTS)
        self._literals: bounded_cache.BoundedCache[_Key, frozenset[tuple[str, str]]] = bounded_cache.BoundedCache(
            _MAX_RESULTS
        )

    def get_rank_settings(
        self,
        name: str,
        rails: Sequence[policies.Rail],
        devices: tuple[str, ...] | None,
        *,
        host_network: bool,
        topology_file: str | None = None,
    ) -> Settings:
        """Return the literals and derived variables of a rank."""
        key = (name, tuple([rail.name for rail in rails]), devices, host_network, topology_file)
        settings = self._ranks.get(key)
        if settings is None:
            fabric = self._document.fabrics[name]
            interface = policies.find_primary_interface(self._document, fabric)
            is_foreign = host_network != fabric.pod.host_network
            settings = _build_settings(derive.Case(fabric, tuple(rails), devices, interface, is_foreign, topology_file))
            self._ranks.add(key, settings)
        return settings

    def list_known_literals(self, name: str, rails: Sequence[policies.Rail]) -> frozenset[tuple[str, str]]:
        """Return names and values as railwright writes them for any role, without the device list."""
        key = (name, tuple([rail.name for rail in rails]), None, False, None)
        literals = self._literals.get(key)
        if literals is None:
            fabric = self._document.fabrics[name]
            interface = policies.find_primary_interface(self._document, fabric)
            rank_settings = self.get_rank_settings(name, rails, None, host_network=fabric.pod.host_network)
            launcher_settings = derive.derive_launcher_settings(fabric, interface, is_foreign=False)
            literals = frozenset(
                [(setting.name, setting.value) for setting in rank_settings.all]
                + [(variable.name, variable.value) for variable in launcher_settings]
            )
            self._literals.add(key, literals)
        return literals


def build_setting(variable: derive.Variable) -> Setting:
    """Return a variable with its record entry and the reason of its change."""
    entry = f"env.{variable.name}"
    recorded = msgspec.json.encode({entry: rendering.record(variable.reason)})[1:-1]
    return Setting(variable.name, variable.value, entry, recorded, rendering.render(variable.reason))


def encode_reasons(settings: Iterable[Setting]) -> RecordedReasons:
    """Return the reason of each record entry as a member of the record's object `reasons`."""
    return {setting.entry: setting.recorded for setting in settings}


def _build_settings(case: derive.Case) -> Settings:
    """Build the settings of a rank.

    The literals of the policy take precedence over derived values. One of a library shows that every rank uses the
    library.
    """
    env = case.fabric.env
    literals = _build_literals(case.fabric, is_foreign=case.is_foreign)
    used_libraries = libraries.detect(env)
    available = [
        variable
        for variable in derive.derive_library_variables(case)
        if env.keys().isdisjoint({variable.name, *libraries.CONFLICTING_VARIABLES.get(variable.name, ())})
    ]
    always_set = [variable for variable in available if libraries.get_library(variable.name) in used_libraries]
    variables = [
        build_setting(variable)
        for variable in (*literals, *(own for own in derive.derive(case) if own.name not in env), *always_set)
    ]
    optional = [build_setting(variable) for variable in available if variable not in always_set]
    file_vars = [
        variable for variable in variables if conf.can_carry(variable.name) and conf.fits(variable.name, variable.value)
    ]
    return Settings(
        all=tuple(variables),
        file_vars=tuple(file_vars),
        env_only_vars=tuple(variable for variable in variables if variable not in file_vars),
        file_text=format_file(file_vars),
        optional_library_vars=tuple(optional),
        recorded=encode_reasons([*variables, *optional]),
    )


def format_file(file_vars: Sequence[Setting]) -> str:
    """Return the content of the file with these variables."""
    return conf.format_file((setting.name, setting.value) for setting in file_vars)


def _build_literals(fabric: policies.Fabric, *, is_foreign: bool) -> list[derive.Variable]:
    """Return the policy's literals. In a foreign network namespace, leave out those that are true in the policy's."""
    own_network = _INTERFACES if fabric.nccl.address_range_includes_host else _INTERFACES | _ADDRESS_RANGES
    return [
        derive.Variable(key, value, _SET_BY_POLICY)
        for key, value in fabric.env.items()
        if not (is_foreign and key in own_network)
    ]
