"""Variables of each transport's ranks by the facts of the policy, and those that are never set (interface.md 3.3).

The tables are written from NCCL's documentation and not from the code. `-` is a fact that a transport leaves alone.
"""

import msgspec
import pytest

from railwright.fabric.nccl import conf, derive, libraries
from railwright.fabric.policy import model

ONE = (model.Rail(name="rail0", device="mlx5_bond_0"),)
FIXED = {  # what a transport says whatever the facts are, beside the common block
    "roce": {"NCCL_IB_HCA": "=mlx5_bond_0"},
    "infiniband": {"NCCL_IB_HCA": "=mlx5_bond_0"},
    "erdma": {"NCCL_IB_HCA": "=mlx5_bond_0", "NCCL_NET_PLUGIN": "none"},
    "pvrdma": {"NCCL_IB_HCA": "=mlx5_bond_0", "NCCL_IB_PCI_RELAXED_ORDERING": "0", "NCCL_NET_GDR_LEVEL": "LOC"},
    "efa": {},
    "tcp": {"NCCL_NET": "Socket", "NCCL_NET_PLUGIN": "none", "NCCL_IB_DISABLE": "1"},
}
COMMON = {"NCCL_SOCKET_IFNAME": "=eth0", "GLOO_SOCKET_IFNAME": "eth0", "TP_SOCKET_IFNAME": "eth0"}
ROWS = """
fact                        variable                   roce       infiniband erdma      pvrdma     efa           tcp
forbid_tcp_fallback=true    NCCL_NET                   IB         IB         IB         IB         AWS_Libfabric Socket
gid_index=3                 NCCL_IB_GID_INDEX          3          -          3          3          -             -
gid_index=3                 MC_GID_INDEX               3          -          3          3          -             -
gid_index=-1                NCCL_IB_GID_INDEX          -1         -          -1         -1         -             -
address_range="10.0.0.0/8"  NCCL_IB_ADDR_RANGE         10.0.0.0/8 -          10.0.0.0/8 10.0.0.0/8 -             -
traffic_class=96            NCCL_IB_TC                 96         -          -          -          -             -
"""


def read_table():
    """Return the variables of each fact, by transport."""
    head, *rows = [line.split() for line in ROWS.strip().splitlines()]
    table: dict[str, dict[str, dict[str, str]]] = {}
    for fact, variable, *values in rows:
        for transport, value in zip(head[2:], values, strict=True):
            variables = {} if value == "-" else {variable: value.replace("_L", " L")}
            table.setdefault(fact, {}).setdefault(transport, {}).update(variables)
    return table


FACTS_TABLE = read_table()


def read_facts(*written: str) -> model.Nccl:
    pairs = [fact.partition("=") for fact in written]
    return msgspec.structs.replace(model.Nccl(), **{name: msgspec.json.decode(value) for name, _, value in pairs})


EVERY = read_facts(*FACTS_TABLE)


def derive_variables(transport, nccl=EVERY, devices=("mlx5_bond_0",), primary="eth0", *, is_foreign=False):
    fabric = model.Fabric(transport=model.Transport(transport), rails=ONE, nccl=nccl, primary_interface=primary)
    return derive.derive_variables(derive.RankFacts(fabric, devices, is_foreign))


def settings(*args, **more):
    return {variable.name: variable.value for variable in derive_variables(*args, **more)}


def test_without_nccl_keys_in_the_policy_only_constant_variables_are_set():
    for transport, variables in FIXED.items():
        assert settings(transport, model.Nccl()) == COMMON | variables


def test_each_key_of_the_policy_sets_its_variable_for_each_transport():
    for fact, by_transport in FACTS_TABLE.items():
        for transport, variables in by_transport.items():
            assert settings(transport, read_facts(fact)) == COMMON | FIXED[transport] | variables, (fact, transport)


@pytest.mark.parametrize("transport", FIXED)
def test_every_derived_variable_has_a_reason_and_fits_into_nccl_conf(transport):
    expected = COMMON | FIXED[transport]
    for variables in FACTS_TABLE.values():
        expected |= variables[transport]
    expected.pop("MC_GID_INDEX", None)  # the last index is NCCL's own choice, -1
    assert settings(transport) == expected
    for variable in derive_variables(transport):
        assert variable.code.meaning
        assert conf.fits_line(variable.name, variable.value)


@pytest.mark.parametrize("transport", ["roce", "erdma"])
def test_without_known_devices_no_variable_lists_devices(transport):
    listed = {"erdma"} if transport == "erdma" else set()
    assert {value for name, value in settings(transport, devices=None).items() if name == "NCCL_IB_HCA"} == listed


def test_the_address_family_is_that_of_the_address_range():
    six, four = read_facts('address_range="fd00::/8"'), read_facts('address_range="10.0.0.0/8"')
    assert settings("roce", six)["NCCL_IB_ADDR_FAMILY"] == "AF_INET6"
    assert settings("roce", six)["NCCL_IB_ADDR_RANGE"] == "fd00::/8"
    assert "NCCL_IB_ADDR_FAMILY" not in settings("roce", four)
    assert "NCCL_IB_ADDR_FAMILY" not in settings("infiniband", six)
    assert "NCCL_IB_ADDR_FAMILY" not in settings("roce", six, is_foreign=True), "its GIDs are others"


def test_with_derive_false_no_variable_is_derived():
    for transport in FIXED:
        assert settings(transport, msgspec.structs.replace(EVERY, derive=False)) == {}


# --- libraries beside NCCL -----------------------------------------------------------------------------------


def derive_library_variables(transport: str, nccl: model.Nccl = model.Nccl(), devices=("mlx5_0", "mlx5_1")):  # noqa: B008 - frozen
    fabric = model.Fabric(transport=model.Transport(transport), rails=ONE, nccl=nccl)
    return {
        variable.name: variable.value
        for variable in derive.derive_variables(derive.RankFacts(fabric, devices, False), derive.LIBRARY_RULES)
    }


BOOTSTRAP = {"NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME": "eth0"}
FACTS = model.Nccl(traffic_class=96, address_range="10.0.0.0/8", gid_index=3)


DEVICES = {
    "UCX_NET_DEVICES": "mlx5_0:1,mlx5_1:1",
    "NVSHMEM_HCA_LIST": "mlx5_0,mlx5_1",
    "NVSHMEM_ENABLE_NIC_PE_MAPPING": "1",
}


@pytest.mark.parametrize(
    ("transport", "devices"), [("infiniband", DEVICES), ("erdma", {}), ("pvrdma", {}), ("tcp", {})]
)
def test_other_libraries_get_the_rails_devices_and_the_interface(transport, devices):
    assert derive_library_variables(transport, FACTS) == BOOTSTRAP | devices


def test_on_roce_nvshmem_and_ucx_get_gid_index_address_range_and_traffic_class():
    assert derive_library_variables("roce", FACTS) == BOOTSTRAP | DEVICES | {
        "NVSHMEM_IB_ADDR_RANGE": "10.0.0.0/8",
        "NVSHMEM_IB_GID_INDEX": "3",
        "UCX_IB_GID_INDEX": "3",
        "UCX_IB_TRAFFIC_CLASS": "96",
    }
    assert derive_library_variables("roce", devices=None) == BOOTSTRAP  # the list and its switch go together
    six = derive_library_variables("roce", model.Nccl(address_range="fd00::/8"))
    assert (six["NVSHMEM_IB_ADDR_FAMILY"], six["NVSHMEM_IB_ADDR_RANGE"]) == ("AF_INET6", "fd00::/8")


def test_nvshmem_uses_libfabric_on_efa():
    assert derive_library_variables("efa", FACTS) == BOOTSTRAP | {
        "NVSHMEM_REMOTE_TRANSPORT": "libfabric",
        "NVSHMEM_LIBFABRIC_PROVIDER": "efa",
    }


def test_the_library_of_a_variable_is_found_from_the_first_word_of_its_name():
    assert libraries.detect_libraries(["A", "NVSHMEM_DEBUG"]) == {"NVSHMEM"}
    assert libraries.detect_libraries(["UCX_TLS", "NVSHMEM_X"]) == {"UCX", "NVSHMEM"}
    assert libraries.detect_libraries(["OMPI_MCA_pml", "MY_UCX_TLS", "UCX", "ucx_tls", "UCXX_A"]) == frozenset()
    assert libraries.detect_libraries(["TORCH_SYMMMEM"]) == {"NVSHMEM"}
    assert libraries.detect_libraries(["TORCH_SYMMMEM_X", "MY_TORCH_SYMMMEM"]) == frozenset()
    assert libraries.detect_libraries([]) == frozenset()


def test_ucx_tls_values_with_rdma_transports_are_recognized():
    assert all(map(libraries.may_use_rdma, ("all", "rc,cuda", "tcp,\\rc_x", "ud_mlx5:aux,tcp", "^tcp")))
    assert not any(map(libraries.may_use_rdma, ("tcp,self", "", "sm,cuda_copy", "^ib", "^rc,ud,dc,tcp")))


@pytest.mark.parametrize(
    ("transport", "host_network"), [("roce", False), ("roce", True), ("erdma", True), ("pvrdma", True)]
)
def test_no_address_range_is_derived_on_the_host_network(transport, host_network):
    nccl = model.Nccl(address_range="10.0.0.0/8")
    fabric = model.Fabric(transport=model.Transport(transport), rails=ONE, nccl=nccl)
    case = derive.RankFacts(fabric, ("mlx5_bond_0",), host_network)
    variables = {
        variable.name
        for variable in (*derive.derive_variables(case), *derive.derive_variables(case, derive.LIBRARY_RULES))
    }
    names = {"NCCL_IB_ADDR_RANGE"} | ({"NVSHMEM_IB_ADDR_RANGE"} if transport == "roce" else set())
    assert variables & {"NCCL_IB_ADDR_RANGE", "NVSHMEM_IB_ADDR_RANGE"} == (set() if host_network else names)
