"""Adds directories to the end of LD_LIBRARY_PATH, without replacing what the container or the image sets.

The webhook does not see the image's value, and an entry of the container hides it. So a container without an entry gets
one only if the policy says so (docs/interface.md 3.3).
"""

from railwright.fabric.injection import applied_pod, context, env_tables, pod_changes
from railwright.fabric.nccl import derive
from railwright.fabric.policy import model as policies
from railwright.fabric.reasons import reason as reasons
from railwright.fabric.reasons.codes import AdmissionCode, VariableCode

LIBRARY_PATH = "LD_LIBRARY_PATH"
_LIBRARY_SETTING = env_tables.build_setting(derive.Variable(LIBRARY_PATH, "", reasons.make(VariableCode.LIBRARY_PATH)))
_LIBRARY_RECORDED = env_tables.encode_reasons([_LIBRARY_SETTING])


def extend_library_path(pod: applied_pod.AppliedPod, ctx: context.InjectionContext) -> pod_changes.Contribution:
    """Add the directories of the policy that the target containers lack."""
    library_path = ctx.fabric.library_path
    if library_path is None or not ctx.role.rails or "env" in ctx.options.skip:
        return pod_changes.EMPTY
    return pod_changes.merge([_extend_in_container(pod, index, library_path) for index in ctx.targets])


def _extend_in_container(
    pod: applied_pod.AppliedPod, index: int, library_path: policies.LibraryPath
) -> pod_changes.Contribution:
    container = pod.container(index)
    position, entry = container.env_by_name.get(LIBRARY_PATH, (None, None))
    source = "valueFrom" if entry and entry.value_from else "envFrom" if entry is None and container.env_from else ""
    if source:
        unknown = reasons.make(
            AdmissionCode.LIBRARY_PATH_UNKNOWN,
            containers=(container.name,),
            source=source,
            directories=library_path.directories,
        )
        return pod_changes.Contribution(skipped={_LIBRARY_SETTING.entry: unknown}, warnings=(unknown,))
    if entry is None and library_path.if_unset == "leave":
        return pod_changes.EMPTY
    current = (entry.value if entry else "") or ""
    missing = [directory for directory in library_path.directories if f":{directory}:" not in f":{current}:"]
    if not missing:
        return pod_changes.Contribution(entries=(_LIBRARY_SETTING.entry,), recorded=(_LIBRARY_RECORDED,))
    change = pod_changes.SetEnv(
        entry=_LIBRARY_SETTING.entry,
        reason=_LIBRARY_SETTING.reason,
        container=index,
        name=LIBRARY_PATH,
        value=":".join([*([current] if current else []), *missing]),
        index=position,
    )
    return pod_changes.Contribution((change,), (_LIBRARY_SETTING.entry,), recorded=(_LIBRARY_RECORDED,))
