"""Fuzzes the parser of nccl.conf against one that reads letter by letter, like NCCL's own loop."""

from collections.abc import Iterator

import conf_reading

from railwright.fabric.nccl import conf

EXECUTIONS = 5_000
TOKENS = (
    b"=",
    b"\n",
    b"#",
    b"NCCL_IB_HCA==mlx5_0",
    b"NCCL_",
    b"\r",
    b"\x00",
    b" ",
    b"x" * 1024,
    b"FI_X=1\n",
    b"\xc3\xa9",
)


def seeds() -> Iterator[bytes]:
    """Yield files in the form of railwright and of users."""
    yield from (b"", b"NCCL_DEBUG=WARN\nNCCL_IB_HCA==mlx5_0,mlx5_1\n", b"# why\n\nA = b\nA=c\n=x\nB\n", b"A=b" * 2000)


def check(data: bytes) -> None:
    """Assert that parsing never fails, equals the parser by letters, and reads a written file back unchanged."""
    text = data.decode("utf-8", "replace")
    parsed = conf_reading.read(text)
    assert parsed == _letters(text)
    sound = {name: value for name, value in parsed.items() if conf.fits(name, value)}
    assert conf_reading.read(conf.format_file(sound.items())) == sound
    for name, value in parsed.items() - sound.items():
        try:
            conf.format_file([(name, value)])
        except ValueError as error:
            assert len(str(error)) < 600
        else:
            raise AssertionError(f"{name!r} was written although it does not fit")


def _letters(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    name, value, in_value = "", "", False
    for letter in [*text, "\n"]:
        if letter == "\n":
            if in_value and name and name[0] != "#" and name[:1023] not in values:
                values[name[:1023]] = value[:1023]
            name, value, in_value = "", "", False
        elif in_value:
            value += letter
        elif letter == "=":
            in_value = True
        else:
            name += letter
    return values
