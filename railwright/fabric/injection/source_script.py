"""Sources the fabric's script before the command of the target containers, which stays whole.

A shell runs `. SCRIPT && exec "$0" "$@"` with the container's own words as "$0" and "$@", so nothing in them is quoted
or interpreted again, and the program replaces the shell. The webhook does not see the command of an image, so a
container without one is left unchanged with a warning (docs/interface.md 3.3).
"""

from railwright.fabric import names
from railwright.fabric.injection import applied_pod, context, pod_changes
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode

_SCRIPT = "sourceScript"


def source_script(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Put the script before the command of each target container."""
    script = ctx.fabric.source_script
    if script is None or not ctx.role.rails or "env" in ctx.options.skip:
        return pod_changes.EMPTY
    prefix = (script.shell, "-c", names.SOURCE_COMMAND.format(path=script.path))
    commands = {index: tuple(pod.container(index).command or ()) for index in ctx.targets}
    changes = [
        pod_changes.SetCommand(
            entry=_SCRIPT,
            reason=f"sets the variables of fabric {ctx.fabric_name} before the program starts",
            container=index,
            command=(*prefix, *command),
        )
        for index, command in commands.items()
        if command and command[: len(prefix)] != prefix
    ]
    if without := tuple([pod.container(index).name for index, command in commands.items() if not command]):
        warning = reasons.make(AdmissionCode.SCRIPT_WITHOUT_COMMAND, containers=without, path=script.path)
        return pod_changes.Contribution(tuple(changes), warnings=(warning,), skipped={_SCRIPT: warning})
    return pod_changes.Contribution(tuple(changes), (_SCRIPT,))
