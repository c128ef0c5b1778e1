"""Options that several commands share: each has one meaning in all of them, that of kubectl."""

import pytest

from railwright.cli import dispatch, options, output, programs
from railwright.cli.__main__ import main

PARSER = dispatch.build_parser()
LEAVES = {leaf.prog.removeprefix("railwright "): leaf for leaf in PARSER.get_leaves() if leaf.command.examples}
SHORT = {
    "-n": "--namespace",
    "-A": "--all-namespaces",
    "-f": "--filename",
    "-R": "--recursive",
    "-o": "--output",
    "-v": "--verbose",
    "-h": "--help",
}
CONF = "NCCL_DEBUG=WARN\n"


def list_options(name):
    return {option for argument in LEAVES[name]._actions for option in argument.option_strings}


def find(name, option):
    return next(argument for argument in LEAVES[name]._actions if option in argument.option_strings)


def test_a_short_option_has_the_same_meaning_in_all_commands():
    for name in LEAVES:
        for short in SHORT.keys() & list_options(name):
            assert find(name, short).option_strings == [short, SHORT[short]], name
        assert not {option for option in list_options(name) if len(option) == 2} - SHORT.keys()


def test_an_option_that_commands_share_has_the_same_value_name_in_all_of_them():
    for option in ("--policy", "--snapshot"):  # `explain` and `lint` have help texts of their own
        holders = [find(name, option) for name in LEAVES if option in list_options(name)]
        assert len(holders) > 1
        assert len({(argument.metavar, argument.dest) for argument in holders}) == 1, option


def test_each_command_is_in_one_group_of_the_help_and_programs_have_a_group_of_their_own():
    names = [name for group in dispatch.GROUPS.values() for name in group]
    assert sorted(names) == list(dispatch.COMMANDS)
    assert set(dispatch.GROUPS["Programs that run in the cluster"]) == set(programs.PROGRAMS)


@pytest.mark.parametrize(
    ("words", "path", "said"),
    [
        (["gang"], "railwright", "argument COMMAND: invalid choice: 'gang' (choose from "),
        (["policy"], "railwright policy", "ACTION must come first: one of init, validate, scheduler-config, schema\n"),
        ([], "railwright", "COMMAND must come first: one of certs, check, "),
        (["gangs", "--names", "x"], "railwright gangs", "unrecognized arguments: --names x\n"),  # no abbreviation
        (["certs", "rotate", "--renew-cas"], "railwright certs rotate", "unrecognized arguments: --renew-cas\n"),
        (["-n", "prod", "gangs"], "railwright", "COMMAND must come first: one of certs, check, "),
    ],
)
def test_wrong_usage_prints_the_usage_of_the_command_and_then_the_error(words, path, said, capsys):
    assert main(words) == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith(f"usage: {path}")
    assert f"\n{path}: error: {said}" in stderr


# --- files ------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    for name in ("b.yaml", "a.yml", "c.json", "nccl.conf", "notes.txt", "deep/d.yaml"):
        path = tmp_path / "m" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CONF)
    (tmp_path / "empty" / "deep").mkdir(parents=True)
    return tmp_path


def parse(*words):
    return PARSER.parse(["policy", "validate", *words])[1]


def find_names(folder, *words):
    return [path.removeprefix(f"{folder}/") for path in options.find_files(parse(*words))]


def test_files_folders_and_the_option_f_give_one_list_of_files_without_duplicates(folder):
    m = f"{folder}/m"
    assert find_names(folder, m) == ["m/a.yml", "m/b.yaml", "m/c.json"]
    assert find_names(folder, m, "-R") == ["m/a.yml", "m/b.yaml", "m/c.json", "m/deep/d.yaml"]
    assert find_names(folder, f"{m}/notes.txt", "-f", m, "-f", f"{m}/a.yml") == [
        "m/notes.txt", "m/a.yml", "m/b.yaml", "m/c.json",
    ]  # fmt: skip
    assert options.find_files(parse("-f", "-")) == ["-"]


def test_a_folder_without_files_is_an_error(folder):
    with pytest.raises(output.UnreadableError, match=r"contains no file named .*, \*\.json; -R searches"):
        options.find_files(parse(f"{folder}/empty"))
    with pytest.raises(output.UnreadableError, match=r"contains no file named .*, \*\.json$"):
        options.find_files(parse(f"{folder}/empty", "-R"))


def test_naming_standard_input_twice_is_an_error():
    with pytest.raises(output.UnreadableError, match="standard input"):
        options.find_files(parse("-", "-f", "-"))


# --- times ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5s", 5.0), ("2m", 120.0), ("1h", 3600.0), ("500ms", 0.5), ("0", 0.0), ("7", 7.0), ("1.5s", 1.5)],
)
def test_the_option_request_timeout_accepts_the_times_that_kubectl_accepts(text, seconds):
    arguments = PARSER.parse(["gangs", "--request-timeout", text])[1]
    assert arguments.request_timeout == seconds


@pytest.mark.parametrize("text", ["", "s", "5x", "-1s", "1.s", "99999d", "5 s", "٣s"])
def test_an_invalid_request_timeout_is_a_usage_error(text, capsys):
    assert main(["gangs", f"--request-timeout={text}"]) == 2
    assert "argument --request-timeout: " in capsys.readouterr().err


@pytest.mark.parametrize(("text", "fix"), [("soon", "write 10s"), ("10", "write 30d, 12h, 10m or 10s"), ("", "write")])
def test_the_option_every_needs_a_number_and_a_unit(text, fix, capsys):
    assert main(["certs", "rotate", f"--every={text}"]) == 2
    assert fix in capsys.readouterr().err
