"""Boundaries of rules over ranges of values, and against the catalogue and other implementations."""

import ipaddress

import hypothesis
import pytest
from hypothesis import strategies as st

from documentation import rules as pages
from railwright.fabric.lint import engine
from railwright.fabric.nccl import catalogue, lists


def list_messages(code, **written):
    return [finding.message for finding in engine.check(pages.build_ranks(written)) if finding.code == code]


networks = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).flatmap(
    lambda address: st.integers(0, address.max_prefixlen).map(lambda bits: f"{address}/{bits}")
)


@hypothesis.given(prefix=networks, family=st.sampled_from([None, "AF_INET", "AF_INET6", "nonsense"]))
def test_a_range_is_a_prefix_of_the_family_that_nccl_looks_for(prefix, family):
    hypothesis.assume("%" not in prefix)
    version = 6 if family == "AF_INET6" else 4
    settings = {"NCCL_IB_ADDR_RANGE": prefix} | ({"NCCL_IB_ADDR_FAMILY": family} if family else {})
    expected = ipaddress.ip_network(prefix, strict=False).version != version
    assert bool(list_messages("N24", settings=settings)) == expected


@pytest.mark.parametrize(("transport", "named"), [("roce", "IB"), ("efa", "AWS Libfabric"), ("infiniband", "IB")])
def test_the_network_to_require_is_the_fabrics(transport, named):
    fabric = {"transport": transport, "nccl": {"forbidTcpFallback": True}}
    context = {"transport": transport, "fabric": fabric}
    (message,) = list_messages("N32", fabric_context=context, devices={"vpc.amazonaws.com/efa": 1})
    assert f"set NCCL_NET={named}" in message


PIECES = st.sampled_from(
    [*"^,;: ", "Ring", "tree", "PAT", "NVLS", "LL", "SIMPLE", "AllReduce", "broadcast", "nonsense"]
)


@hypothesis.given(st.lists(PIECES, min_size=1, max_size=9).map("".join))
def test_the_grammar_takes_what_the_catalogue_allows_and_never_breaks(value):
    for name, words in (("NCCL_ALGO", lists.ALGORITHMS), ("NCCL_PROTO", lists.PROTOCOLS)):
        refused = bool(list_messages("N33", settings={name: value}))
        assert not (refused and catalogue.get(name).allows(value))
        if " " in value:
            assert refused or all(word not in value for word in words)


@pytest.mark.parametrize("name", ["NCCL_DEBUG", "NCCL_DEBUG_SUBSYS"])
@hypothesis.given(data=st.data())
def test_the_words_of_logging_are_those_of_the_catalogue(name, data):
    words = ["version", "WARN", "Info", "TRACE", "INIT", "net", "ALL", "ALLOC_HOST", "^", ",", "x"]
    value = "".join(data.draw(st.lists(st.sampled_from(words), min_size=1, max_size=5)))
    assert bool(list_messages("N42", settings={name: value})) != catalogue.get(name).allows(value)


@hypothesis.given(size=st.integers(0, 2 << 30), accelerators=st.integers(0, 8))
def test_shared_memory_counts_from_two_accelerators_and_up_to_a_gibibyte(size, accelerators):
    messages = list_messages("N46", accelerators=accelerators, capabilities=[], shared_memory=size)
    assert bool(messages) == (accelerators > 1 and 0 < size < 1 << 30)


@hypothesis.given(devices=st.integers(1, 8), networks=st.integers(1, 8), bare=st.integers(0, 3))
def test_each_device_has_a_network_unless_the_policy_gives_its_rail_none(devices, networks, bare):
    rails = [{"name": f"r{n}"} | ({} if n < bare else {"network": f"n/{n}"}) for n in range(8)]
    context = {"transport": "roce", "exclusive": False, "fabric": {"transport": "roce", "rails": rails}}
    named = "=" + ",".join(f"mlx5_{n}" for n in range(devices))
    messages = list_messages("N47", settings={"NCCL_IB_HCA": named}, fabric_context=context, networks=networks)
    assert bool(messages) == (networks < devices - bare)


@hypothesis.given(st.integers(0, 40))
def test_a_timeout_is_slow_from_24_to_the_end_of_its_range(exponent):
    assert bool(list_messages("N49", settings={"NCCL_IB_TIMEOUT": str(exponent)})) == (24 <= exponent <= 31)


def test_the_time_a_dead_link_takes_is_reported_with_its_retries():
    (message,) = list_messages("N49", settings={"NCCL_IB_TIMEOUT": "24"})
    assert "about 9 minutes" in message
    (message,) = list_messages("N49", settings={"NCCL_IB_TIMEOUT": "24", "NCCL_IB_RETRY_CNT": "3"})
    assert "about 5 minutes" in message


@hypothesis.given(st.integers(0, 70000))
def test_a_partition_index_ends_at_127(number):
    assert bool(list_messages("N59", settings={"NCCL_IB_PKEY": str(number)})) == (number > 127)
