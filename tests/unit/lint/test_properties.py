"""Boundaries of rules over ranges of values, and against the catalogue and other implementations."""

import ipaddress
import itertools

import hypothesis
from hypothesis import strategies as st

from documentation import rules as pages
from railwright.fabric.lint import engine
from railwright.fabric.nccl import catalogue, derive


def list_messages(code, **written):
    return [finding.message for finding in engine.check_ranks(pages.build_ranks(written)) if finding.code == code]


networks = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).flatmap(
    lambda address: st.integers(0, address.max_prefixlen).map(lambda bits: f"{address}/{bits}")
)


@hypothesis.given(prefix=networks, family=st.sampled_from([None, "AF_INET", "AF_INET6", "nonsense"]))
def test_an_address_range_is_reported_if_its_family_is_not_nccls(prefix, family):
    hypothesis.assume("%" not in prefix)
    version = 6 if family == "AF_INET6" else 4
    settings = {"NCCL_IB_ADDR_RANGE": prefix} | ({"NCCL_IB_ADDR_FAMILY": family} if family else {})
    expected = ipaddress.ip_network(prefix, strict=False).version != version
    assert any("_RANGE=" in message for message in list_messages("N10", settings=settings)) == expected


class _Recorded(dict):
    """Settings that note the names for which they are asked."""

    def __init__(self, settings, asked):
        super().__init__(settings)
        self.asked = asked

    def get(self, name, default=None):
        self.asked.add(name)
        return super().get(name, default)

    def __contains__(self, name):
        self.asked.add(name)
        return super().__contains__(name)


def test_every_variable_that_a_rule_looks_up_is_checked_by_a_rule():
    asked = set()
    names = [variable.name for variable in catalogue.list_variables()]
    for name, value in itertools.product(
        [*names, *derive.NAMES, "NVSHMEM_HCA_PE_MAPPING"], ("1", "IB", "ofi", "ibgda")
    ):
        ranks = pages.build_ranks({"settings": {name: value}})
        ranks.__dict__["effective_settings"] = _Recorded(ranks.effective_settings, asked)
        engine.check_ranks(ranks)
    assert asked
    assert [name for name in sorted(asked) if not engine.find_rules(name)] == []
