"""Reads the policy in a file, with all errors of an invalid one."""

from railwright.cli import output
from railwright.cluster import policies as policy_reader
from railwright.fabric.policy import model


def read_file(path: str) -> model.Policy:
    """Return the policy in a file, `-` for standard input. Raise UnreadableError with all its errors."""
    return _parse(output.read_text(path), path)


def _parse(text: str, path: str) -> model.Policy:
    fix = f"correct it and check it with railwright policy validate {path}"
    return require_valid(policy_reader.read_manifest(text), path, fix)


def find_fabric(policy: model.Policy, name: str) -> str:
    """Return the name of a fabric of the policy, "" for its default. Raise UnreadableError if it is not defined."""
    fabrics = policy.document.fabrics
    fabric_name = name or policy.document.default_fabric or (next(iter(fabrics)) if len(fabrics) == 1 else "")
    if fabric_name not in fabrics:
        problem = f"--fabric {name}: not defined in the policy" if name else "--fabric NAME is missing"
        raise output.UnreadableError(f"{problem} (defined: {', '.join(fabrics)})")
    return fabric_name


def require_valid(result: model.Policy | policy_reader.Rejected, source: str, fix: str) -> model.Policy:
    """Return a policy that was read. Raise UnreadableError with all errors of an invalid one, and `fix`."""
    if not isinstance(result, policy_reader.Rejected):
        return result
    first, *others = [output.escape_controls(error.format_in(source)) for error in result.errors]
    if not others:
        raise output.UnreadableError(f"{first}; {fix}")
    raise output.UnreadableError("\n  ".join([f"the policy is invalid; {fix}:", first, *others]))
