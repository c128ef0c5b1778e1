"""`railwright completion SHELL`: prints a script that a shell's start-up file sources for TAB completion."""

from railwright.cli import parsers

HELP = "print the script for TAB completion in bash, zsh or fish"
EXAMPLE = "source <(railwright completion bash)"
RUN = "railwright.cli.completion:print_script"


def configure(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="shell to print the script for")
