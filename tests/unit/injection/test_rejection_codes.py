"""Every rejection has a code of the one table, and every code is raised somewhere."""

import ast
import pathlib
from collections.abc import Iterator

from railwright.fabric.injection import opt_in
from railwright.fabric.reasons import codes
from webhook import reviews

ROOT = pathlib.Path(__file__).parents[3]
NAMES = {"UNKNOWN_FABRIC": opt_in.UNKNOWN_FABRIC}
POSITION = {"RefusedError": 0, "Refusal": 1, "_build_refusal": 2}  # of the code among the arguments


def list_raised() -> Iterator[str]:
    for path in [*(ROOT / "railwright" / "fabric" / "injection").glob("*.py"), *(ROOT / "webhook").glob("*.py")]:
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call):
                continue
            position = POSITION.get(ast.unparse(call.func).rpartition(".")[2])
            if position is None or len(call.args) <= position:
                continue
            match call.args[position]:
                case ast.Constant(value=str(code)):
                    yield code
                case ast.Name(id=name) if name in NAMES:
                    yield NAMES[name]


def test_the_codes_in_use_are_those_of_the_table():
    assert {*list_raised(), reviews.TOO_LARGE} == {*codes.RejectionCode}
