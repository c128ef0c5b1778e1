"""`railwright completion SHELL`: prints a script that a shell's start-up file sources for TAB completion."""

from railwright.cli import parsers

HELP = "Print the script for TAB completion in bash, zsh or fish."
EXAMPLES = (
    "source <(railwright completion bash)",
    "railwright completion fish > ~/.config/fish/completions/railwright.fish",
)
RUN = "railwright.cli.completion:print_script"


def configure(parser: parsers.Parser) -> None:
    """Define the options of this command."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="Shell to print the script for.")
