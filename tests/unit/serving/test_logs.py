"""A log record is one line of JSON for any values."""

import io
import json
import logging

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from railwright.serving import logs

HOSTILE = st.text(st.characters(codec=None, categories=("Cc", "Cf", "Cs", "Zl", "Zp", "Lu", "Po")), max_size=50)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | HOSTILE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(HOSTILE, inner, max_size=4),
    max_leaves=20,
)


def format_record(message: object, *args: object, fields: object = None, error: BaseException | None = None) -> str:
    trace = (type(error), error, error.__traceback__) if error else None
    record = logging.LogRecord("test", logging.INFO, "", 0, message, args, trace)
    if fields is not None:
        record.fields = fields
    return logs.JsonFormatter().format(record)


@given(HOSTILE, TREES)
@example("\x7f\x9b\u2028", None)
def test_user_input_cannot_break_a_log_line_or_control_the_terminal(text, tree):
    line = format_record(text, fields={"sent": tree})
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line, parse_constant=pytest.fail)["message"] == json.loads(json.dumps(text))


def test_long_values_are_truncated():
    line = json.loads(format_record("m" * 5000, fields={"body": "x" * 10_000, "many": list(range(1000))}))
    assert len(line["message"]) == 4096
    assert len(line["fields"]["body"]) < 4200
    assert len(line["fields"]["many"]) == 64


def test_an_exception_is_a_field_of_the_same_line():
    line = format_record("failed", error=ValueError("a\nb"))
    assert "\n" not in line
    assert json.loads(line)["error"].endswith("ValueError: a\nb")


def test_configured_logging_writes_to_the_stream_from_every_logger():
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    try:
        logs.configure_logging(stream=stream)
        logging.getLogger("aiohttp.server").warning("heard")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    line = json.loads(stream.getvalue())
    assert (line["logger"], line["level"], line["message"]) == ("aiohttp.server", "warning", "heard")
    assert line["time"].endswith("+00:00")
