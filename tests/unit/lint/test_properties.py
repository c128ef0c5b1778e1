"""Boundaries of rules over ranges of values, and against the catalogue and other implementations."""

import ipaddress

import hypothesis
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
def test_an_address_range_is_a_prefix_of_the_family_that_nccl_looks_for(prefix, family):
    hypothesis.assume("%" not in prefix)
    version = 6 if family == "AF_INET6" else 4
    settings = {"NCCL_IB_ADDR_RANGE": prefix} | ({"NCCL_IB_ADDR_FAMILY": family} if family else {})
    expected = ipaddress.ip_network(prefix, strict=False).version != version
    assert any("_RANGE=" in message for message in list_messages("N10", settings=settings)) == expected


PIECES = st.sampled_from(
    [*"^,;: ", "Ring", "tree", "PAT", "NVLS", "LL", "SIMPLE", "AllReduce", "broadcast", "nonsense"]
)


@hypothesis.given(st.lists(PIECES, min_size=1, max_size=9).map("".join))
def test_the_grammar_accepts_all_values_of_the_catalogue_and_never_fails(value):
    for name, words in (("NCCL_ALGO", lists.ALGORITHMS), ("NCCL_PROTO", lists.PROTOCOLS)):
        refused = bool(list_messages("N10", settings={name: value}))
        assert not (refused and catalogue.get(name).allows(value))
        if " " in value.strip():
            assert refused or all(word not in value for word in words)
