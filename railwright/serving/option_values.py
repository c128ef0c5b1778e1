"""Parses the values of the servers' options. Each function raises ValueError with the expected form."""

import math
import pathlib
import urllib.parse

from railwright.fabric import quantity

_TRUE, _FALSE = frozenset({"1", "true", "yes", "on"}), frozenset({"", "0", "false", "no", "off"})


def parse_bytes(text: str) -> int:
    """Return a positive number of bytes, written as a Kubernetes quantity."""
    try:
        size = quantity.parse_units(text)
    except quantity.InvalidQuantityError:
        size = 0
    if size < 1:
        raise ValueError(f"{text!r} is not a positive number of bytes, such as 7340032 or 7Mi")
    return size


def parse_seconds(text: str) -> float:
    """Return a number of seconds, 0 or more."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"{text!r} is not a number of seconds, 0 or more")
    return seconds


def parse_switch(text: str) -> bool:
    """Return whether the text means true."""
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() in _TRUE


def parse_names(text: str) -> frozenset[str]:
    """Return the names of a comma list. A list without a name is an error, because it would admit every client."""
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    if text and not names:
        raise ValueError(f"{text!r} contains no name; write NAME,NAME or leave the option out")
    return names


def parse_endpoint(text: str) -> str:
    """Return the URL that spans are posted to. A path is kept; without one, OTLP's default path is added."""
    if "@" in text:
        raise ValueError("a URL with credentials would be logged: put them into OTEL_EXPORTER_OTLP_HEADERS")
    url = _parse_url(text, "http(s)://HOST[:PORT][/PATH], such as http://otel-collector.monitoring:4318")
    return url.geturl() if url.path.strip("/") else f"{url.scheme}://{url.netloc}/v1/traces"


def parse_origin(text: str) -> str:
    """Return the URL of a server, without a path."""
    form = "http://HOST[:PORT], such as http://railwright-extender.railwright-system:8080"
    url = _parse_url(text, form)
    if url.scheme != "http" or url.path.strip("/") or "@" in text:
        raise ValueError(f"{text!r} is not {form}")
    return f"{url.scheme}://{url.netloc}"


def _parse_url(text: str, form: str) -> urllib.parse.SplitResult:
    message = f"{text!r} is not {form}"
    try:
        url = urllib.parse.urlsplit(text.strip())
        port = url.port
    except ValueError:  # an invalid port, or a bracket that is not closed
        raise ValueError(message) from None
    if url.scheme not in {"http", "https"} or not url.hostname or port == 0 or url.query or url.fragment:
        raise ValueError(message)
    return url


def parse_file(text: str) -> pathlib.Path:
    """Return the path of a file, which need not exist."""
    if not text or "\0" in text:
        raise ValueError(f"{text!r} is not a file name")
    return pathlib.Path(text)


def parse_file_name(text: str) -> str:
    """Return the path of a file as text."""
    return str(parse_file(text))
