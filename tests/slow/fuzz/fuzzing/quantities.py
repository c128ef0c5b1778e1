"""Fuzzes quantities against an independent parser of Kubernetes' grammar on decimals."""

import decimal
import fractions
from collections.abc import Iterator

from railwright.fabric import quantity

EXECUTIONS = 20_000
TOKENS = (*b"+ - . e E e3 E-2 Ki Gi Ei k m u n M T P 0 9 64Gi 1e41 1_0 \xd9\xa3 inf nan 0x1".split(b" "), b" ", b"\n")
_BINARY = {f"{letter}i": 2 ** (10 * power) for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_EXACT = decimal.Context(prec=400)
# Kubernetes caps larger values and rounds smaller ones up (resource/quantity.go, maxAllowed and minAllowed).
_MOST, _LEAST = decimal.Decimal(2**63 - 1), decimal.Decimal("1e-9")


def seeds() -> Iterator[bytes]:
    """Yield quantities as in manifests."""
    yield from (b"1", b"500m", b"64Gi", b"1.5", b".5", b"5.", b"+2", b"-1", b"1e3", b"1E2", b"2E", b"100n", b"0")


def check(data: bytes) -> None:
    """Assert that a text is parsed as a quantity exactly if the grammar accepts it, and with the same value."""
    text = data.decode("utf-8", "replace")
    try:
        value = quantity.parse(text)
    except quantity.InvalidQuantityError as error:
        assert _reading(text) is None, text
        assert len(str(error)) < 400
        return
    other = _reading(text)
    assert other is not None, text
    assert value == fractions.Fraction(other), text
    for ours, scale in ((quantity.parse_units(text), 0), (quantity.parse_milli(text), 3)):
        assert ours == other.scaleb(scale, _EXACT).to_integral_value(decimal.ROUND_CEILING, _EXACT), text


def _reading(text: str) -> decimal.Decimal | None:
    if not text or len(text) > 64:
        return None
    sign, rest = (text[0], text[1:]) if text[0] in "+-" else ("", text)
    end = 0
    while end < len(rest) and rest[end] in "0123456789.":
        end += 1
    digits, suffix = rest[:end], rest[end:]
    if digits.count(".") > 1 or not digits.strip("."):
        return None
    factor = _factor(suffix)
    if factor is None:
        return None
    value = min(_EXACT.multiply(decimal.Decimal(digits), factor), _MOST)
    value = max(value, _LEAST) if value else value
    return _EXACT.minus(value) if sign == "-" else value


def _factor(suffix: str) -> decimal.Decimal | None:
    if suffix in _BINARY:
        return decimal.Decimal(_BINARY[suffix])
    if suffix in _DECIMAL:
        return decimal.Decimal(1).scaleb(_DECIMAL[suffix])
    number = suffix[1:].removeprefix("-") if suffix[1:2] == "-" else suffix[1:].removeprefix("+")
    if suffix[0] not in "eE" or not number or not set(number) <= set("0123456789"):
        return None
    power = min(int(number), 200)  # beyond, 64 digits are capped or rounded up all the same
    return decimal.Decimal(1).scaleb(-power if suffix[1] == "-" else power)
