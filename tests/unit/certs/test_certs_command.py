"""`railwright certs issue --out`: files, second runs, exit codes."""

import json
import stat

import pytest

from railwright.cli.__main__ import main

NAMES = ("ca", "webhook", "extender", "client")


def run(*arguments):
    return main(["certs", "issue", *arguments])


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_every_pair_is_written_and_only_the_owner_reads_keys(tmp_path, capsys):
    out = tmp_path / "pki"
    assert run("--out", str(out)) == 0
    assert set(content(out)) == {f"{name}.{kind}" for name in NAMES for kind in ("crt", "key")}
    assert {stat.S_IMODE((out / f"{name}.key").stat().st_mode) for name in NAMES} == {0o600}
    printed = capsys.readouterr()
    assert "PRIVATE" not in printed.out + printed.err


def test_a_second_run_keeps_every_byte_and_does_not_touch_the_files(tmp_path, capsys):
    run("--out", str(tmp_path))
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    bytes_before = content(tmp_path)
    capsys.readouterr()
    assert run("--out", str(tmp_path), "-o", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert [(certificate["name"], certificate["state"]) for certificate in document["certificates"]] == [
        (name, "kept") for name in NAMES
    ]
    assert content(tmp_path) == bytes_before
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give --out DIR, --secrets or both"),
        (("--out", "DIR", "--host", "https://x"), "https://x"),
        (("--out", "DIR/file/below"), "file"),
    ],
)
def test_wrong_usage_exits_2_with_the_reason(tmp_path, capsys, arguments, words):
    (tmp_path / "file").write_text("")
    assert run(*(argument.replace("DIR", str(tmp_path)) for argument in arguments)) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("days", ["0", "-1", "40000", "x"])
def test_a_lifetime_out_of_range_is_refused_by_the_parser(tmp_path, capsys, days):
    assert run("--out", str(tmp_path), f"--days={days}") == 2
    assert "--days" in capsys.readouterr().err
