"""Values from which rules N23 to N60 report, and values that they accept."""

import ipaddress

import hypothesis
import msgspec
import pytest
from hypothesis import strategies as st

from railwright.fabric.lint import engine, rule_types, settings
from railwright.fabric.nccl import algo_proto, catalogue
from railwright.fabric.policy import model as policies

RULES = {rule.code: rule for rule in engine.list_rules()}
ROCE, IB, EFA, TCP, PVRDMA = (policies.Transport(name) for name in ("roce", "infiniband", "efa", "tcp", "pvrdma"))
SHARED = {"rdma/hca_shared_devices": 1}


def speaks(code, ranks):
    return bool(list(RULES[code].check(ranks)))


def ranks(site=None, *, origin=rule_types.Origin.ENV, more=None, **values):
    entries = tuple(msgspec.structs.replace(entry, origin=origin) for entry in settings.build_env(**values))
    return rule_types.RankContext("a rank", entries, site or rule_types.FabricContext(), **(more or {}))


@hypothesis.given(pairs=st.integers(1, 200), fused=st.integers(1, 4))
def test_queue_pairs_are_counted_on_every_fused_device(pairs, fused):
    group = ",".join(f"mlx5_{n}" for n in range(fused))
    one = ranks(NCCL_IB_QPS_PER_CONNECTION=str(pairs), NCCL_NET_FORCE_MERGE=f"{group};mlx5_9")
    assert speaks("N23", one) == (pairs * fused > 128)


def test_fused_devices_that_are_not_known_count_once():
    assert not speaks("N23", ranks(NCCL_IB_QPS_PER_CONNECTION="128", NCCL_NET_FORCE_MERGE=None))
    assert not speaks("N23", ranks(NCCL_IB_QPS_PER_CONNECTION=None))


networks = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).flatmap(
    lambda address: st.integers(0, address.max_prefixlen).map(lambda bits: f"{address}/{bits}")
)


@hypothesis.given(prefix=networks, family=st.sampled_from([None, "AF_INET", "AF_INET6", "nonsense"]))
def test_a_prefix_of_the_wanted_family_is_fine_and_any_other_is_not(prefix, family):
    hypothesis.assume("%" not in prefix)
    ip_version = 6 if family == "AF_INET6" else 4
    values = {"NCCL_IB_ADDR_RANGE": prefix} | ({"NCCL_IB_ADDR_FAMILY": family} if family else {})
    assert speaks("N24", ranks(**values)) == (ipaddress.ip_network(prefix, strict=False).version != ip_version)


@pytest.mark.parametrize("text", ["10.0.0.0/33", "10.0.0/8", "10.0.0.0/", "/8", "fe80::1%eth0/64", "10.0.0.0/8,", "x"])
def test_what_is_no_prefix_is_reported(text):
    assert speaks("N24", ranks(NCCL_IB_ADDR_RANGE=text))


@pytest.mark.parametrize("site", [IB, EFA, TCP])
def test_a_range_without_effect_is_another_rules_affair(site):
    assert not speaks("N24", ranks(rule_types.FabricContext(transport=site), NCCL_IB_ADDR_RANGE="nonsense"))


@hypothesis.given(rail=st.integers(0, 255), range_=st.integers(0, 255), bits=st.integers(8, 24))
def test_a_rail_outside_the_range_is_reported_and_one_that_overlaps_is_not(rail, range_, bits):
    subnet = ipaddress.ip_network(f"10.{rail}.0.0/16")
    written = f"10.{range_}.0.0/{bits}"
    one = ranks(rule_types.FabricContext(transport=ROCE, rail_subnets=(str(subnet),)), NCCL_IB_ADDR_RANGE=written)
    assert speaks("N25", one) == (not subnet.overlaps(ipaddress.ip_network(written, strict=False)))


def test_the_policys_own_range_is_believed():
    fabric = policies.Fabric(transport=ROCE, nccl=policies.Nccl(address_range="10.0.0.0/8"))
    site = rule_types.FabricContext(transport=ROCE, fabric=fabric, rail_subnets=("192.168.0.0/24",))
    assert not speaks("N25", ranks(site, NCCL_IB_ADDR_RANGE="10.0.0.0/8"))
    assert speaks("N25", ranks(site, NCCL_IB_ADDR_RANGE="10.0.0.0/9"))


def test_rails_of_one_family_are_compared_with_a_range_of_that_family_only():
    site = rule_types.FabricContext(transport=ROCE, rail_subnets=("10.1.0.0/16", "fd02::/64"))
    assert not speaks("N25", ranks(site, NCCL_IB_ADDR_RANGE="fd00::/8"))
    assert speaks("N25", ranks(site, NCCL_IB_ADDR_RANGE="fd03::/64"))


def test_an_old_nccl_or_a_fixed_index_does_not_look_for_a_family():
    site = rule_types.FabricContext(transport=ROCE, rail_subnets=("fd02::/64",))
    assert not speaks("N26", ranks(site, more={"nccl": (2, 20, 5)}))
    assert speaks("N26", ranks(site, more={"nccl": (2, 21, 5)}))
    assert speaks("N26", ranks(site, NCCL_IB_GID_INDEX="-1"))
    assert not speaks("N26", ranks(site, NCCL_IB_GID_INDEX="0"))
    assert not speaks("N26", ranks(site, NCCL_IB_ADDR_FAMILY=None))


def test_the_automatic_values_are_no_noise():
    assert not speaks("N27", ranks(rule_types.FabricContext(transport=IB), NCCL_IB_GID_INDEX="-1", NCCL_IB_TC="-1"))
    assert speaks("N27", ranks(rule_types.FabricContext(transport=IB), NCCL_IB_GID_INDEX=None))


def test_a_switch_that_is_on_is_any_number_but_zero_and_no_word():
    for value, wasted in {"1": True, "2": True, "0": False, "true": False, "": False}.items():
        assert speaks("N28", ranks(NCCL_IB_DISABLE=value, more={"devices": SHARED})) == wasted


def test_a_plugin_does_not_look_at_the_switch():
    off = {"NCCL_IB_DISABLE": "1"}
    assert not speaks("N28", ranks(**off, more={"devices": {"vpc.amazonaws.com/efa": 4}}))
    assert not speaks("N28", ranks(**off, NCCL_NET="IBext_v11", more={"devices": SHARED}))
    assert speaks("N28", ranks(**off, NCCL_NET="IB", more={"devices": SHARED}))


def test_a_network_from_another_source_causes_no_finding():
    assert not speaks("N29", ranks(NCCL_NET=None, NCCL_IB_DISABLE="1"))
    assert not speaks("N30", ranks(NCCL_NET=None, NCCL_IB_DISABLE="1"))
    assert not speaks("N30", ranks(NCCL_IBEXT_DISABLE="1", NCCL_IB_DISABLE="1"))
    assert not speaks("N30", ranks(rule_types.FabricContext(transport=EFA), NCCL_IB_DISABLE="1"))


@pytest.mark.parametrize(
    ("network", "transport", "devices", "wrong"),
    [
        ("Socket", None, {}, False),
        ("Socket", None, SHARED, True),
        ("socket", ROCE, {}, True),
        ("Socket", TCP, SHARED, False),
        ("IB", TCP, {}, True),
        ("ib", EFA, {}, True),
        ("IB", None, {"vpc.amazonaws.com/efa": 1}, True),
        ("AWS Libfabric", EFA, {}, False),
        ("AWS Libfabric", ROCE, {}, True),
        ("IBext_v8", EFA, {}, True),
        ("IBext_v8", PVRDMA, {}, False),
        ("gIB", ROCE, {}, False),
        ("gIB", IB, {}, True),
        ("Slingshot", ROCE, {}, False),
        ("IB", None, SHARED, False),
    ],
)
def test_a_network_is_held_against_the_fabric_as_far_as_both_are_known(network, transport, devices, wrong):
    one = ranks(rule_types.FabricContext(transport=transport), NCCL_NET=network, more={"devices": devices})
    assert speaks("N31", one) == wrong


@pytest.mark.parametrize(("transport", "named"), [(ROCE, "IB"), (EFA, "AWS Libfabric"), (IB, "IB")])
def test_the_network_to_require_is_the_fabrics(transport, named):
    strict = policies.Fabric(transport=transport, nccl=policies.Nccl(forbid_tcp_fallback=True))
    one = ranks(
        rule_types.FabricContext(transport=transport, fabric=strict), more={"devices": {"vpc.amazonaws.com/efa": 1}}
    )
    (finding,) = RULES["N32"].check(one)
    assert f"set NCCL_NET={named}" in finding.message


PIECES = st.sampled_from(
    [*"^,;: ", "Ring", "tree", "PAT", "NVLS", "LL", "SIMPLE", "AllReduce", "broadcast", "nonsense"]
)


@hypothesis.given(st.lists(PIECES, min_size=1, max_size=9).map("".join))
def test_the_grammar_takes_what_the_catalogue_allows_and_never_breaks(value):
    for name, words in (("NCCL_ALGO", algo_proto.ALGORITHMS), ("NCCL_PROTO", algo_proto.PROTOCOLS)):
        refused = speaks("N33", ranks(**{name: value}))
        assert not (refused and catalogue.find(name).allows(value))
        speaks("N35", ranks(**{name: value}))
        if " " in value:
            assert refused or all(word not in value for word in words)


@pytest.mark.parametrize(
    ("value", "left"),
    [
        ("Ring", {"Broadcast": {"Ring"}, "AllReduce": {"Ring"}}),
        ("Ring;AllReduce:Tree", {"Broadcast": {"Ring"}, "AllReduce": {"Tree"}}),
        (
            "allreduce:^ring",
            {"Broadcast": set(algo_proto.ALGORITHMS), "AllReduce": set(algo_proto.ALGORITHMS) - {"Ring"}},
        ),
        ("Ring,,Tree;", {"Broadcast": {"Ring", "Tree"}}),
    ],
)
def test_what_a_choice_leaves(value, left):
    parsed = algo_proto.parse(value, algo_proto.ALGORITHMS)
    assert {function: parsed[function] for function in left} == left


@pytest.mark.parametrize(
    "value", ["Rings", "Ring;Tree", ";Ring", "AllReduce:", "AllToAll:Ring", "AllReduce:Ring:Tree", ":"]
)
def test_what_stops_nccl_is_refused(value):
    with pytest.raises(algo_proto.InvalidChoiceError):
        algo_proto.parse(value, algo_proto.ALGORITHMS)


@pytest.mark.parametrize(
    ("value", "bare"),
    [("Tree", True), ("Ring", False), ("^Ring", True), ("AllReduce:PAT", True), ("NVLS,Ring", False),
     ("Tree;Broadcast:Ring", True), ("AllReduce:Tree;AllGather:NVLS", False), ("Rings", False)],
)  # fmt: skip
def test_a_function_without_an_algorithm_is_reported(value, bare):
    assert speaks("N35", ranks(NCCL_ALGO=value)) == bare
    assert not speaks("N35", ranks(NCCL_ALGO=value, more={"nccl": (2, 23, 4)}))


@hypothesis.given(threads=st.integers(-2, 20), sockets=st.integers(-2, 80))
def test_threads_and_their_sockets_have_limits(threads, sockets):
    one = ranks(NCCL_SOCKET_NTHREADS=str(threads), NCCL_NSOCKS_PERTHREAD=str(sockets))
    assert speaks("N36", one) == (threads > 16 or sockets * max(1, threads) > 64)


def test_a_single_rail_cannot_be_crossed():
    fabric = policies.Fabric(transport=ROCE, rails=(policies.Rail(name="rail0"),))
    assert not speaks("N37", ranks(rule_types.FabricContext(transport=ROCE, fabric=fabric), NCCL_CROSS_NIC="0"))


def test_what_the_operator_writes_is_no_difference_from_the_policy():
    rails = (policies.Rail(name="rail0"), policies.Rail(name="rail1"))
    fabric = policies.Fabric(transport=ROCE, rails=rails, env={"NCCL_CROSS_NIC": "0"})
    assert not speaks("N37", ranks(rule_types.FabricContext(transport=ROCE, fabric=fabric), NCCL_CROSS_NIC="0"))


@pytest.mark.parametrize(("count", "wrong"), [(0, False), (1, False), (2, True), (8, True)])
def test_local_transports_matter_from_two_accelerators_on(count, wrong):
    assert speaks("N38", ranks(NCCL_SHM_DISABLE="1", more={"accelerators": count})) == wrong
    assert speaks("N38", ranks(NCCL_P2P_DISABLE="1", more={"accelerators": count})) == wrong
    assert not speaks("N38", ranks(NCCL_P2P_DISABLE="2", more={"accelerators": count}))  # acts on 1 only


def test_a_host_identity_is_shared_by_the_pods_of_a_template_or_by_what_mpirun_starts():
    identity = {"NCCL_HOSTID": "a"}
    assert speaks("N39", ranks(**identity, more={"count": 2}))
    assert not speaks("N39", ranks(**identity, more={"count": 1, "job": 16}))
    assert speaks("N39", ranks(**identity, origin=rule_types.Origin.MPIRUN, more={"count": 1, "job": 16}))
    assert not speaks("N39", ranks(NCCL_COMM_ID="10.0.0.1:1", more={"count": 1, "job": 1}))


@pytest.mark.parametrize(
    ("path", "missing"),
    [("/a/t.xml", False), ("/a/b/t.xml", False), ("/ab/t.xml", True), ("/b/t.xml", False), ("/etc/t.xml", True),
     ("/opt/amazon/ofi-nccl/share/p4d-24xl-topo.xml", False), ("/var/run/nvidia-topologyd/virtualTopology.xml", False)],
)  # fmt: skip
def test_a_file_is_looked_for_under_the_mounts(path, missing):
    pod = {"capabilities": frozenset(), "mounts": {"/a": "hostPath", "/b/t.xml": "other"}}
    assert speaks("N40", ranks(NCCL_TOPO_FILE=path, more=pod)) == missing


@pytest.mark.parametrize(
    ("value", "wrong"),
    [("mlx5_0,mlx5_1", False), ("mlx5_0;mlx5_1;", False), (";", True), (",", True), ("mlx5_0;;mlx5_1", True),
     ("mlx5_0:1,mlx5_1:1", False), ("mlx5_0,mlx5_0", True), ("mlx5", True), ("mlx5_9", True)],
)  # fmt: skip
def test_groups_hold_names_that_are_there(value, wrong):
    site = rule_types.FabricContext(devices=(("mlx5_0",), ("mlx5_1",)))
    assert speaks("N41", ranks(site, NCCL_NET_FORCE_MERGE=value)) == wrong


def test_names_of_functions_allocated_later_are_not_held_against_the_nodes():
    site = rule_types.FabricContext(devices=(("mlx5_0",),), exclusive=True)
    assert not speaks("N41", ranks(site, NCCL_NET_FORCE_MERGE="mlx5_9,mlx5_10"))


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "NCCL_DEBUG_SUBSYS"])
@hypothesis.given(data=st.data())
def test_the_words_of_logging_are_those_of_the_catalogue(name, data):
    words = ["version", "WARN", "Info", "TRACE", "INIT", "net", "ALL", "ALLOC_HOST", "^", ",", "x"]
    value = "".join(data.draw(st.lists(st.sampled_from(words), min_size=1, max_size=5)))
    assert speaks("N42", ranks(**{name: value})) != catalogue.find(name).allows(value)


@pytest.mark.parametrize(
    ("value", "mount", "accelerators", "count", "wrong"),
    [
        ("/logs/n.%h.%p", "other", 8, 8, False),
        ("/logs/n.%p", "other", 8, 8, True),
        ("/logs/n.%p", "other", 8, 1, False),
        ("/logs/n.%p", "emptyDir", 8, 8, False),
        ("/logs/n.%h", "other", 8, 8, True),
        ("/logs/n.%h", "other", 1, 8, False),
        ("/logs/n", "other", 1, 8, True),
        ("/logs/n", "emptyDir", 1, 8, False),
        ("/dev/stdout", "other", 8, 8, False),
        ("/logs/n", "other", 1, None, False),
    ],
)
def test_a_log_file_is_one_for_each_process_that_can_reach_it(value, mount, accelerators, count, wrong):
    pod = {"mounts": {"/logs": mount}, "accelerators": accelerators, "count": count}
    assert speaks("N44", ranks(NCCL_DEBUG_FILE=value, more=pod)) == wrong


@pytest.mark.parametrize(
    ("capabilities", "privileged", "user", "granted_by_policy", "wrong"),
    [
        (None, False, None, None, False),  # no pod is seen
        ((), False, None, None, True),
        (("IPC_LOCK",), False, None, None, False),
        (("ALL",), False, 0, None, False),
        (("IPC_LOCK",), False, 1000, None, True),
        ((), True, None, None, False),
        ((), True, 1000, None, True),
        ((), False, None, (), False),  # the policy grants nothing: it knows its nodes
        ((), False, None, ("IPC_LOCK",), True),
    ],
)
def test_locked_memory_needs_the_capability_and_root(capabilities, privileged, user, granted_by_policy, wrong):
    fabric = (
        None
        if granted_by_policy is None
        else policies.Fabric(transport=ROCE, security=policies.Security(capabilities=granted_by_policy))
    )
    pod = {
        "devices": SHARED,
        "capabilities": None if capabilities is None else frozenset(capabilities),
        "privileged": privileged,
        "run_as_user": user,
    }
    context = ranks(rule_types.FabricContext(fabric=fabric), more=pod)
    assert (speaks("N45", context) or speaks("N64", context)) == wrong


@hypothesis.given(size=st.integers(0, 2 << 30), accelerators=st.integers(0, 8))
def test_shared_memory_counts_from_two_accelerators_and_up_to_a_gibibyte(size, accelerators):
    pod = {"accelerators": accelerators, "capabilities": frozenset(), "shared_memory": size}
    assert speaks("N46", ranks(more=pod)) == (accelerators > 1 and 0 < size < 1 << 30)


@hypothesis.given(devices=st.integers(1, 8), networks=st.integers(1, 8), bare=st.integers(0, 3))
def test_each_device_has_a_network_unless_the_policy_gives_its_rail_none(devices, networks, bare):
    rails = tuple(policies.Rail(name=f"r{n}", network=None if n < bare else f"n/{n}") for n in range(8))
    site = rule_types.FabricContext(
        transport=ROCE, exclusive=False, fabric=policies.Fabric(transport=ROCE, rails=rails)
    )
    one = ranks(site, NCCL_IB_HCA="=" + ",".join(f"mlx5_{n}" for n in range(devices)), more={"networks": networks})
    assert speaks("N47", one) == (networks < devices - bare)


def test_sr_iov_and_unknown_networks_are_not_counted():
    four = {"NCCL_IB_HCA": "=mlx5_0,mlx5_1,mlx5_2,mlx5_3"}
    assert not speaks(
        "N47", ranks(rule_types.FabricContext(transport=ROCE, exclusive=True), **four, more={"networks": 1})
    )
    assert not speaks("N47", ranks(rule_types.FabricContext(transport=ROCE), **four, more={"networks": None}))
    assert not speaks("N47", ranks(**four, more={"networks": 1}))
    assert speaks("N47", ranks(rule_types.FabricContext(transport=ROCE), **four, more={"networks": 1}))


@hypothesis.given(st.integers(0, 40))
def test_a_timeout_is_slow_from_24_to_the_end_of_its_range(exponent):
    assert speaks("N49", ranks(NCCL_IB_TIMEOUT=str(exponent))) == (24 <= exponent <= 31)


def test_the_time_a_dead_link_takes_is_reported_with_its_retries():
    (finding,) = RULES["N49"].check(ranks(NCCL_IB_TIMEOUT="24"))
    assert "about 9 minutes" in finding.message
    (finding,) = RULES["N49"].check(ranks(NCCL_IB_TIMEOUT="24", NCCL_IB_RETRY_CNT="3"))
    assert "about 5 minutes" in finding.message


def test_the_policys_timeout_is_believed_also_where_it_is_not_derived():
    for derive in (True, False):
        fabric = policies.Fabric(transport=ROCE, nccl=policies.Nccl(derive=derive, timeout=25))
        site = rule_types.FabricContext(transport=ROCE, fabric=fabric)
        assert not speaks("N49", ranks(site, NCCL_IB_TIMEOUT="25"))
        assert speaks("N49", ranks(site, NCCL_IB_TIMEOUT="26"))


def test_azures_file_is_known_on_the_host_too():
    tuned = {"NCCL_IB_PCI_RELAXED_ORDERING": "1"}
    assert speaks("N50", ranks(**tuned, more={"mounts": {"/etc/nccl.conf": "hostPath"}}))
    assert not speaks("N50", ranks(**tuned, more={"mounts": {"/etc/nccl.conf": "downwardAPI"}}))
    assert not speaks("N50", ranks(NCCL_IB_TC="96", more={"image": "example.com/azhpc/x"}))


def test_adaptive_routing_from_elsewhere_is_not_guessed():
    assert not speaks(
        "N51", ranks(rule_types.FabricContext(transport=ROCE), NCCL_IB_OOO_RQ="1", NCCL_IB_ADAPTIVE_ROUTING=None)
    )


def test_a_switch_of_nvshmem_is_read_by_its_first_letter():
    for value, silent in {"1": True, "true": True, "YES": True, "0": False, "": False, None: True}.items():
        one = ranks(NVSHMEM_HCA_LIST="mlx5_0", NVSHMEM_ENABLE_NIC_PE_MAPPING=value)
        assert speaks("N53", one) != silent


@pytest.mark.parametrize(
    ("transport", "listed", "devices", "wrong"),
    [
        (PVRDMA, "vmw_pvrdma", {}, False),
        (PVRDMA, "rocep11s0,rocep12s0", {}, True),
        (PVRDMA, "^mlx5_0,mlx5_1", {}, False),
        (None, "vmw_pvrdma0,vmw_pvrdma1", {}, True),
        (ROCE, "mlx5_0,mlx5_1", {}, False),
        (None, "", {"rdma/pvrdma": 100}, False),  # the amount of a shared plugin
        (None, "", {"rdma/pvrdma": 1, "mellanox.com/sriov_rdma": 1}, True),
        (PVRDMA, "", {"rdma/hca_a": 1, "rdma/hca_b": 1}, True),
        (None, "", {"rdma/hca_a": 1, "rdma/hca_b": 1}, False),
    ],
)
def test_there_is_one_pvrdma_device(transport, listed, devices, wrong):
    one = ranks(rule_types.FabricContext(transport=transport), NCCL_IB_HCA=listed, more={"devices": devices})
    assert speaks("N56", one) == wrong


@pytest.mark.parametrize(
    ("resource", "amount", "site", "wrong"),
    [
        ("nvidia.com/sriov-rdma-vf", 16, rule_types.FabricContext(), True),
        ("nvidia.com/sriov-rdma-vf", 1, rule_types.FabricContext(), False),
        ("rdma/hca_shared_devices", 8, rule_types.FabricContext(), False),
        ("aliyun/erdma", 4, rule_types.FabricContext(transport=policies.Transport.ERDMA, exclusive=True), False),
        ("vpc.amazonaws.com/efa", 32, rule_types.FabricContext(transport=EFA, exclusive=True), False),
        ("vpc.amazonaws.com/efa", 32, rule_types.FabricContext(), False),
    ],
)
def test_only_functions_of_one_pool_are_suspected(resource, amount, site, wrong):
    assert speaks("N57", ranks(site, more={"devices": {resource: amount}})) == wrong


def test_what_the_policy_gives_a_pod_is_no_suspicion_and_more_than_that_is():
    rails = tuple(policies.Rail(name=f"r{n}", resource="example.com/sriov_vf") for n in range(4))
    site = rule_types.FabricContext(transport=ROCE, exclusive=True, fabric=policies.Fabric(transport=ROCE, rails=rails))
    assert not speaks("N57", ranks(site, more={"devices": {"example.com/sriov_vf": 4}}))
    assert speaks("N57", ranks(site, more={"devices": {"example.com/sriov_vf": 5}}))


@hypothesis.given(st.integers(0, 70000))
def test_a_partition_index_ends_at_127(number):
    assert speaks("N59", ranks(NCCL_IB_PKEY=str(number))) == (number > 127)


def test_a_successor_is_the_name_of_today():
    (finding,) = RULES["N60"].check(ranks(NCCL_MAX_NRINGS="4"))
    assert finding.message.endswith("use NCCL_MAX_CTAS")
    (finding,) = RULES["N60"].check(ranks(NCCL_LAUNCH_MODE="GROUP"))
    assert finding.message.endswith("remove it")


@pytest.mark.parametrize("code", [f"N{number}" for number in range(23, 61)])
def test_an_empty_value_is_left_to_the_rule_for_empty_values(code):
    every = {name: "" for example in RULES[code].bad for name in (setting.name for setting in example.context.settings)}
    # what is empty is set, so these say only that it is not what should be there
    assert speaks(code, ranks(**every)) == (code in {"N52", "N53", "N54", "N60"} and bool(every))
