"""What a plan is made from: everything known of one service, at one instant."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from windrow.cloudprovider.names import load_balancer_name
from windrow.cloudprovider.services.readings import Interfaces, LoadBalancer, Owner, Service
from windrow.cloudprovider.services.sharing import Sharing


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """What does not change while the program runs."""

    cluster: str
    namespace: str  # on Harvester
    management_network: str = ""

    def name_for(self, service: Service) -> str:
        return load_balancer_name(self.cluster, service.namespace, service.name, service.uid)

    def owner_for(self, service: Service) -> Owner:
        return Owner(self.cluster, service.namespace, service.name)

    def owns(self, balancer: LoadBalancer | None, service: Service) -> bool:
        """Whether it is there, and labelled as this service's."""
        return balancer is not None and balancer.owner == self.owner_for(service)


@dataclass(frozen=True, slots=True)
class Unavailable:
    """A side that is not known now. `problem` is "" while it is only being listed, or away for a moment."""

    problem: str = ""
    until: datetime | None = None  # when the moment is over


@dataclass(frozen=True, slots=True)
class WaitState:
    """What the plan before waited for, and since when."""

    what: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class ServiceState:
    """One service and all that its plan depends on, at one instant."""

    service: Service
    now: datetime
    load_balancer: LoadBalancer | None = None  # of the name that this service's has
    orphans: tuple[LoadBalancer, ...] = ()  # of services before it that had its name
    sharing: Sharing | None = None
    sharers: tuple[Service, ...] = ()  # of its primary's address
    users: tuple[Service, ...] = ()  # of its own address
    primary_network: str = ""
    holder: Service | None = None  # whose address it shows, as its label says
    is_reserved: bool = True  # what it shows is somebody's on Harvester, as far as is known
    host: Unavailable | None = None  # None: all of Harvester's load balancers are known
    interfaces: Interfaces | Unavailable | None = None  # None: there is no map
    wait: WaitState = WaitState()
    is_gone: bool = False  # it is not in the cluster any more
    new_removed_keys: tuple[str, ...] = ()  # annotations without effect that it has been given
    has_new_request: bool = False  # it asks for another address or pool than when it was last looked at
