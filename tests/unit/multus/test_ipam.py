"""Subnets in the CNI configuration of a network."""

import ipaddress
import json

import pytest

from railwright.fabric.multus import ipam


@pytest.mark.parametrize(
    ("state", "subnets"),
    [
        ({"type": "host-local", "subnet": "10.1.0.0/24"}, ["10.1.0.0/24"]),
        ({"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64"}]]}, 2),
        ({"type": "whereabouts", "range": "10.2.0.225-10.2.0.230/28"}, ["10.2.0.224/28"]),
        ({"type": "whereabouts", "ipRanges": [{"range": "10.2.0.0/24"}, {"range": "10.3.0.0/24"}]}, 2),
        ({"type": "static", "addresses": [{"address": "10.4.0.5/24", "gateway": "10.9.0.1"}]}, ["10.4.0.0/24"]),
        ({"type": "dhcp"}, []),
        ({"type": "host-local", "subnet": "nonsense", "range": 3}, []),
    ],
)
@pytest.mark.parametrize("is_list", [False, True])
def test_the_subnets_of_each_ipam_plugin_are_read(state, subnets, is_list):
    plugin = {"type": "sriov", "ipam": state}
    found = ipam.read_configuration(json.dumps({"plugins": [plugin, {"type": "rdma"}]} if is_list else plugin)).subnets
    if isinstance(subnets, int):
        assert len(found) == subnets
    else:
        assert found == tuple(map(ipaddress.ip_network, subnets))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"ipam": 3}', '{"plugins": [3]}', "[" * 100_000])
def test_an_empty_or_malformed_cni_configuration_has_no_subnets(text):
    assert ipam.read_configuration(text).subnets == ()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", ""),  # Multus reads a file on the node
        ('{"type": "macvlan"}', ""),
        ('{\n"mode": "bridge",}', "line 2, column 1"),
        ("[]", "it is JSON, but no object"),
    ],
)
def test_a_cni_configuration_that_is_no_json_object_has_an_error(text, error):
    found = ipam.read_configuration(text).error
    assert found.startswith(error)
    assert bool(found) is bool(error)
