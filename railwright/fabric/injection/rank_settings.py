"""Lists the variables of a fabric's ranks (literals of the policy, derived values), and which can be set in a file.

The variables follow from the policy and few properties of a pod, so they are cached with each policy version.
Literals take precedence over derived values (docs/interface.md 2.3).
"""

import functools
from collections.abc import Callable, Mapping

import msgspec

from railwright.fabric import device_names, names
from railwright.fabric.nccl import conf, derive, libraries
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons.codes import VariableCode

# Literals that name an interface or addresses in the network namespace that the policy describes: the pod's own, or the
# node's. Another may have neither.
_OWN_NETWORK = frozenset(
    {
        "NCCL_SOCKET_IFNAME",
        "GLOO_SOCKET_IFNAME",
        "TP_SOCKET_IFNAME",
        "NCCL_IB_ADDR_RANGE",
        "NVSHMEM_IB_ADDR_RANGE",
    }
)
_IN_FILES = ("NCCL_", "FI_", "UCX_")  # beginnings of the variables that nccl.conf and ucx.conf have
# Libraries that read no file, with the prefix of their variables
_WITHOUT_FILE = {"NVSHMEM": "NVSHMEM_", "Mooncake": "MC_", "UCCL": "UCCL_", "MORI": "MORI_"}
# By these, the libraries find the files of the init container
FILE_PATHS = (("NCCL_CONF_FILE", f"{names.RAILS_PATH}/nccl.conf"), ("UCX_CONFIG_DIR", names.RAILS_PATH))


class Settings(msgspec.Struct, frozen=True):
    """The variables of a rank. If the pod gets the init container, it may find the values of `found`."""

    all: tuple[derive.Variable, ...] = ()
    file_vars: tuple[derive.Variable, ...] = ()  # that can be set in a file
    optional_library_vars: tuple[derive.Variable, ...] = ()  # for containers that use the library; no file can set them
    open_mpi: tuple[derive.Variable, ...] = ()  # those of Open MPI, which are literals
    by_name: Mapping[str, derive.Variable] = {}  # all, and those of libraries
    found: tuple[derive.Variable, ...] = ()
    without_file: tuple[str, ...] = ()  # libraries that read no file, and have variables in `found`
    paths: tuple[derive.Variable, ...] = ()  # of the files with what is found
    planned: frozenset[tuple[str, str | None]] = (
        frozenset()
    )  # names and values of all, and of paths that are not the vendor's
    arguments: tuple[str, ...] = ()  # of the init container, which writes the values into files


GetSettings = Callable[[str, device_names.Devices | None, bool, bool], Settings]


def compile_settings(document: policies.PolicyDocument) -> GetSettings:
    """Return a function that returns the settings of ranks with given `derive.RankFacts`, and caches them."""

    @functools.lru_cache(maxsize=256)  # a policy has few fabrics, but a pod may have any of the rails
    def build(name: str, devices: device_names.Devices | None, is_foreign: bool, has_interface: bool) -> Settings:  # noqa: FBT001 - keys of the cache
        return _build_settings(derive.RankFacts(document.fabrics[name], devices, is_foreign, has_interface))

    return build


def _build_settings(rank: derive.RankFacts) -> Settings:
    """Return the settings of a rank. A literal for a variable of a library means that all ranks use the library."""
    env = rank.fabric.env
    used_libraries, literals = libraries.detect_libraries(env), list_literals(rank.fabric)
    available = [
        variable
        for variable in derive.derive_variables(rank, derive.LIBRARY_RULES)
        if env.keys().isdisjoint({variable.name, *libraries.CONFLICTING_VARIABLES.get(variable.name, ())})
    ]
    always_set = [variable for variable in available if libraries.get_library(variable.name) in used_libraries]
    variables = (
        *[literal for literal in literals if not (rank.is_foreign and literal.name in _OWN_NETWORK)],
        *[variable for variable in derive.derive_variables(rank) if variable.name not in env],
        *always_set,
    )
    optional = tuple([variable for variable in available if variable not in always_set])
    found = derive.list_found_variables(rank.fabric)
    paths = [(name, path) for name, path in FILE_PATHS if name not in env]
    in_files = [f"{one.name}={one.value}".replace("$", "$$") for one in variables if one.name.startswith(_IN_FILES)]
    return Settings(
        all=variables,
        file_vars=tuple(
            [
                variable
                for variable in variables
                if conf.can_contain(variable.name) and conf.fits_line(variable.name, variable.value)
            ]
        ),
        optional_library_vars=optional,
        open_mpi=tuple([variable for variable in variables if variable.name.startswith(libraries.OPEN_MPI)]),
        by_name={variable.name: variable for variable in (*variables, *optional)},
        found=tuple([derive.Variable(name, "", VariableCode.FOUND_IN_POD) for name in found]),
        without_file=tuple(
            [library for library, prefix in _WITHOUT_FILE.items() if any(name.startswith(prefix) for name in found)]
        ),
        paths=tuple([derive.Variable(name, path, VariableCode.FOUND_IN_POD) for name, path in paths]),
        planned=frozenset(
            [
                *[(variable.name, variable.value) for variable in variables],
                *[(name, path) for name, path in paths if not rank.nccl.is_set_by_vendor(name)],
            ]
        ),
        # kubelet expands `$(NAME)` in a command, and `$$` to `$`
        arguments=tuple([word for setting in in_files for word in ("--set", setting)]),
    )


def list_literals(fabric: policies.Fabric) -> list[derive.Variable]:
    """Return the variables of a fabric's `env`."""
    return [derive.Variable(name, value, VariableCode.SET_BY_POLICY) for name, value in fabric.env.items()]
