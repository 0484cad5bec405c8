"""The setups of the chart that are checked: each is a file of values, and what is around it."""

import dataclasses

from . import autoscaling, availability, nats, network, pods, references, routes, schemas, tls
from .network import INTERNET6, Surroundings
from .paths import CHART
from .render import render_chart


@dataclasses.dataclass(frozen=True)
class Setup:
    """A file of values below the chart, and what its deployment must stand."""

    file: str
    around: Surroundings = Surroundings()
    is_upgrade: bool = False
    is_production: bool = False
    has_budgets: bool = True

    def name(self):
        return f"{self.file}{', upgrade' if self.is_upgrade else ''}"

    def render(self):
        return render_chart(files=[CHART / self.file], is_upgrade=self.is_upgrade)


SETUPS = [
    Setup("values.yaml"),
    Setup("values-local.yaml"),
    Setup("values-prod.yaml", is_production=True),
    Setup("values-prod.yaml", is_upgrade=True, is_production=True),
    Setup("ci/existing-nats-values.yaml"),
    Setup(
        "ci/everything-values.yaml",
        Surroundings(
            tools=("team-tools",),
            load_balancers=("203.0.113.7",),
            web_tool_hosts=("ailoop-tool-host-web", "ailoop-tool-host-servers"),
            has_issuers=True,
        ),
        is_production=True,
    ),
    Setup("ci/edge-tls-values.yaml"),
    Setup("ci/nats-tls-values.yaml"),
    Setup("ci/hpa-values.yaml"),
    Setup("ci/nothing-values.yaml", has_budgets=False),
    Setup("ci/ipv6-values.yaml", Surroundings(local_dns=(), internet=(INTERNET6,), load_balancers=("2001:db8::7",))),
    Setup("ci/openshift-values.yaml", Surroundings(local_dns=(), dns=(("openshift-dns", 53), ("openshift-dns", 5353)))),
]


def check(documents, around=Surroundings(), is_production=False, has_budgets=True):
    """Everything that rendered manifests must be."""
    schemas.check(documents)
    schemas.check_configuration(documents)
    pods.check(documents)
    references.check(documents)
    nats.check(documents)
    nats.check_configuration(documents)
    network.check(documents, around)
    autoscaling.check(documents)
    routes.check(documents)
    tls.check(documents)
    if has_budgets:
        availability.check(documents)
    if is_production:
        availability.check_production(documents)


def check_setup(setup):
    documents = setup.render()
    check(documents, setup.around, setup.is_production, setup.has_budgets)
    return len(documents)
