"""Fuzzes Multus's annotation: a user's entries are refused with a reason, or stay before ours."""

import json
from collections.abc import Iterator

from railwright.fabric.multus import network_selection

EXECUTIONS = 10_000
TOKENS = (
    *b'/ @ , [ { " ] } : \\ eth0 net1 lo prod/lan2 a.b null true 1e3 \\ud800 02:00:00:00:00:01 10.0.0.1/24'.split(b" "),
    *b"name namespace interface interfaceRequest ips mac infiniband-guid portMappings bandwidth".split(b" "),
    *b"cni-args default-route ipam-claim-reference NAME hostIP 0123456789abcdef".split(b" "),
    *(b" ", b"\n", b"\xc2\xa0", b"\x1c", b"\xe2\x80\xa8"),
)
_OURS = (
    (network_selection.Selection("prod", "lan2"), network_selection.Selection("prod", "lan3", "rail1")),
    (
        network_selection.Selection("prod", "a.b"),
        network_selection.Selection("oci", "vf", "x,y"),
        network_selection.Selection("oci", "vf"),
    ),
    (),
)


def merge(text, ours, namespace):
    return network_selection.merge_networks(text, network_selection.parse_networks(text, namespace), tuple(ours))


def seeds() -> Iterator[bytes]:
    """Yield values of both forms; the first byte selects the added networks."""
    for text in (
        *("", "a", "a@net7, b/c ,d/e@x", "prod/lan2@mine", "oci/vf@rail1,oci/vf", "a,,b", "[]", ' [ {"name":"a"} ] '),
        '[{"name":"a.b","namespace":"x","interface":"i","x-unknown":{"deep":[1e3]}}]',
        '[{"name":"a","mac":"02:00:00:00:00:01","ips":["10.0.0.1/24","fd00::1"],"default-route":["10.0.0.1"]}]',
        '[{"name":"a","portMappings":[{"hostPort":1,"hostIP":"::"}],"bandwidth":{"ingressRate":1},"cni-args":{}}]',
    ):
        for chosen in b"\x00\x01\x02":
            yield bytes([chosen]) + text.encode()


def check(data: bytes) -> None:
    """Assert that only InvalidNetworksError is raised, and that a merged value has the user's entries first."""
    text = data[1:].decode("utf-8", "replace")
    ours = _OURS[data[0] % len(_OURS)] if data else ()
    try:
        theirs = network_selection.parse_networks(text, "team")
    except network_selection.InvalidNetworksError as error:
        assert len(str(error)) < 600
        return
    merged = merge(text, ours, "team")
    after = network_selection.parse_networks(merged.text, "team")
    assert after == merged.selections
    assert after[: len(theirs)] == theirs
    assert len(after) == len(theirs) + merged.added
    for key in {network.key for network in (*theirs, *ours)}:
        counts = [[network.key for network in some].count(key) for some in (theirs, ours, after)]
        assert counts[2] == max(counts[:2])
    assert merge(merged.text, ours, "team") == network_selection.MergedAnnotation(merged.text, after, 0)
    _check_words(text, merged.text, len(theirs))
    try:
        network_selection.check_interfaces(after)
    except network_selection.InvalidNetworksError as error:
        assert len(str(error)) < 600


def _check_words(text: str, merged: str, count: int) -> None:
    """Assert that the result contains the user's entries unchanged."""
    if text and network_selection.is_json(text):
        assert json.loads(merged)[:count] == json.loads(text)
    elif text and not network_selection.is_json(merged):
        assert merged.startswith(text)
    elif text:
        written = json.loads(merged)[:count]
        assert all(
            "namespace" not in network
            for network, item in zip(written, text.split(","), strict=True)
            if "/" not in item
        )
