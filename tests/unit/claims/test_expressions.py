"""The devices that an expression selects are those of Kubernetes' own compiler, or unknown, but never guessed."""

import pytest
import selecting

from railwright.fabric.claims import cel_programs, comparisons
from railwright.fabric.claims.comparisons import Match

ROWS = selecting.read_rows()
_MAX_UNKNOWN = {"published": 0, "kubernetes": 36, "limits": 80}  # rows with a device that is unknown; lower is better


def name_kind(row: selecting.Row) -> str:
    if row.source.startswith("kubernetes:"):
        return "kubernetes"
    return "limits" if row.source.startswith("the limits") else "published"


def list_results(row: selecting.Row) -> str:
    return "".join(selecting.LETTERS[selecting.evaluate(row.expression, tree).match] for tree in row.devices)


def is_allowed(results: str, kubernetes: str) -> bool:
    """True if each result is Kubernetes' or unknown. An expression that it does not accept is in no cluster."""
    if kubernetes == selecting.INVALID:
        return True
    return all(own in ("?", theirs) for own, theirs in zip(results, kubernetes, strict=True))


def test_a_result_equals_that_of_kubernetes_or_is_unknown():
    results = [(row.expression, list_results(row), row.results) for row in ROWS]
    assert [row for row in results if not is_allowed(*row[1:])] == []


def test_the_library_gives_the_results_of_kubernetes():
    for row in ROWS:
        results = "".join(
            selecting.LETTERS[cel_programs.evaluate(row.expression, offered.device, offered.id.driver).match]
            for offered in map(selecting.offer, row.devices)
        )
        if row.results == selecting.INVALID:
            assert set(results) == {"?"}, row.expression
        else:
            assert is_allowed(results, row.results), (row.expression, results, row.results)


@pytest.mark.parametrize("kind", _MAX_UNKNOWN)
def test_no_more_expressions_are_unknown_than_stated(kind):
    rows = [row for row in ROWS if name_kind(row) == kind and row.results != selecting.INVALID]
    unknown = [row.expression for row in rows if "?" in list_results(row)]
    assert len(unknown) <= _MAX_UNKNOWN[kind], "\n".join(unknown)


def test_comparisons_need_no_library():
    plain = [row for row in ROWS if name_kind(row) == "published" and comparisons.parse(row.expression) is not None]
    assert len(plain) > 70


@pytest.mark.parametrize(
    "expression",
    [
        f"{list(range(60))}.all(a, {list(range(60))}.all(b, 'xy'.matches('(x|y|z|[a-z]){{1000}}') || a >= 0))",
        f"{list(range(2000))}.all(a, {' && '.join(['a >= 0'] * 200)})",
        'cel.bind(a, "aaaaaaaa", cel.bind(b, a + a, cel.bind(c, b + b, c + c == "")))',
        " && ".join(["device.driver.matches('[a-z.]{1,32}x?y?z?(a|b|c|d|e|f)*')"] * 100),
        "(" * 5000 + "true" + ")" * 5000,
        "x" * 20000,
    ],
    ids=range(6),
)
def test_costly_expressions_are_not_evaluated(expression):
    assert comparisons.parse(expression) is None
    assert cel_programs.evaluate(expression, selecting.offer({"driver": "d"}).device, "d").match is Match.UNKNOWN


@pytest.mark.parametrize(
    ("expression", "match"),
    [
        ('device.driver == "dra.net" && cidr("10.0.0.0/8").containsIP("10.1.2.3")', Match.NO),
        ("int(device.driver.substring(0, 1)) == 4", Match.UNKNOWN),
        ("int(' 4') == 4", Match.UNKNOWN),
        ("int('-4') == -4", Match.YES),
        ('cidr("10.0.0.0/8").containsIP("10.1.2.3") && device.driver == "dra.net"', Match.NO),
        ('cidr("10.0.0.0/8").containsIP("10.1.2.3") && device.driver == "other"', Match.UNKNOWN),
        (
            'device.driver == "dra.net" && cidr("10.0.0.0/8").containsIP("10.1.2.3") || device.driver == "other"',
            Match.UNKNOWN,
        ),
        ('device.driver == "dra.net" && ip("::1").family() == 6 ? true : true', Match.UNKNOWN),
        ("ip('::1').family() == 6 && r'\\' == '&& false && '", Match.UNKNOWN),
    ],
)
def test_a_conjunction_needs_all_its_comparisons(expression, match):
    assert selecting.evaluate(expression, {"driver": "other"}).match is match


def test_a_long_comparison_is_left_to_the_library():
    expression = 'device.driver in ["' + '", "'.join(f"driver-{number:04}" for number in range(100)) + '"]'
    assert comparisons.parse(expression) is None
    assert selecting.evaluate(expression, {"driver": "driver-0099"}).match is Match.YES


def test_the_cause_names_the_part_that_is_not_evaluated():
    result = selecting.evaluate('sets.contains([1], [1]) && device.driver == "d"', {"driver": "d"})
    assert (result.match, "sets" in result.cause) == (Match.UNKNOWN, True)
    result = selecting.evaluate('device.attributes["d"].nic.matches("a")', {"driver": "d"})
    assert (result.match, result.cause) == (Match.FAILS, 'the device has no "nic"')
