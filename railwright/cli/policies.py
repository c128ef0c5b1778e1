"""Reads the policy in a file, with all errors of an invalid one."""

from railwright.cli import output
from railwright.cluster import policies as policy_reader
from railwright.fabric.policy import model


def read_file(path: str) -> model.Policy:
    """Return the policy in a file, `-` for standard input. Raise UnreadableError with all its errors."""
    fix = f"correct it and check it with railwright policy validate {path}"
    return require_valid(policy_reader.read_manifest(output.read_text(path)), path, fix)


def require_valid(result: model.Policy | policy_reader.Rejected, source: str, fix: str) -> model.Policy:
    """Return a policy that was read. Raise UnreadableError with all errors of an invalid one, and `fix`."""
    if not isinstance(result, policy_reader.Rejected):
        return result
    first, *others = [output.escape_controls(error.format_in(source)) for error in result.errors]
    if not others:
        raise output.UnreadableError(f"{first}; {fix}")
    raise output.UnreadableError("\n  ".join([f"the policy is invalid; {fix}:", first, *others]))
