"""Why a machine cannot run real nodes: one line, found before anything is built."""

import os

from realnode import machine


def test_a_user_other_than_root_is_named_as_the_reason(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert machine.find_obstacle() == "real nodes need root"


def test_missing_programs_are_named(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.find_obstacle().startswith("programs are missing: apt-get, dpkg, ip, ")


def test_a_kernel_that_refuses_is_quoted_in_a_line(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for tool in machine.TOOLS:
        program = tmp_path / tool
        program.write_text("#!/bin/sh\necho 'unshare failed: Operation not permitted' >&2\nexit 1\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert machine.find_obstacle() == "namespaces cannot be made: unshare failed: Operation not permitted"
