"""A framework that railwright does not know, written as its file in railwright/fabric/workloads would be."""

from collections.abc import Iterator, Sequence

from railwright.fabric import views
from railwright.fabric.workloads import frameworks

JOB = "acme.example/job"
ROLE = "acme.example/role"
INDEX = "acme.example/index"


class Team(frameworks.Replicas, frozen=True):
    """A team: `replicas` pods of a template."""


class Spec(views.View, frozen=True):
    """The teams of a Mission."""

    teams: list[Team] | None = None


class Mission(frameworks.Workload, frozen=True):
    """A Mission, with the fields that state its size."""

    spec: Spec = Spec()


def _build_metadata(context: frameworks.TemplateContext) -> frameworks.ControllerMetadata:
    return frameworks.ControllerMetadata({JOB: context.workload, ROLE: context.name})


def _create_pods(origin: frameworks.TemplateOrigin) -> Iterator[frameworks.CreatedPods]:
    team = origin.context.name
    yield frameworks.CreatedPods(
        f"team {team}", origin.parent.get("replicas", 1), name=f"-{team}-0", labels={INDEX: "0"}
    )


def _list_teams(mission: Mission) -> Sequence[frameworks.Replicas]:
    return mission.spec.teams or ()


def _list_marks(owner: views.Identity) -> Sequence[frameworks.PodMarks]:
    return (frameworks.PodMarks({JOB: owner.name}),)


FRAMEWORK = frameworks.Framework(
    workload_kinds=(
        frameworks.WorkloadKind(
            "acme.example",
            "v1",
            "Mission",
            frameworks.locate("teams", frameworks.EACH, build_metadata=_build_metadata),
            create_pods=_create_pods,
            size=frameworks.SizeRule(Mission, _list_teams, _list_marks),
        ),
    ),
    gang_labels=(frameworks.GangLabel(JOB, "mission"),),
    role_labels=(ROLE,),
    index_labels=(INDEX,),
    roles={ROLE: {"pilot": frameworks.LAUNCHER}},
)
