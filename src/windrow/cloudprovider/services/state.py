"""The observed state of one Service: what its plan is made from."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from windrow.cloudprovider import names
from windrow.cloudprovider.names import load_balancer_name, second_load_balancer_name
from windrow.cloudprovider.services.readings import Interfaces, LoadBalancer, Owner, Service
from windrow.cloudprovider.services.sharing import Sharing


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The cluster and the namespace on Harvester; constant while the controllers run."""

    cluster: str
    namespace: str  # on Harvester
    management_network: str = ""
    has_elections: bool = False  # kube-vip elects a leader for each service

    def name_for(self, service: Service) -> str:
        return load_balancer_name(self.cluster, service.namespace, service.name, service.uid)

    def second_name_for(self, service: Service) -> str:
        """Of the LoadBalancer for the address of its second family."""
        return second_load_balancer_name(self.cluster, service.namespace, service.name, service.uid)

    def owner_for(self, service: Service) -> Owner:
        return Owner(self.cluster, service.namespace, service.name)


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Objects that are not known now. `problem` is "" while they are listed, and in the first seconds of an error."""

    problem: str = ""
    until: datetime | None = None  # when the problem is to be reported


@dataclass(frozen=True, slots=True)
class WaitState:
    """What the last plan waited for, and since when."""

    what: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class ServiceState:
    """One service and all that its plan depends on, at one instant."""

    service: Service
    now: datetime
    settings: ClusterSettings
    load_balancer: LoadBalancer | None = None  # the one with the name for this service
    second: LoadBalancer | None = None  # the one with the name for its second family
    orphans: tuple[LoadBalancer, ...] = ()  # of earlier services of its name
    other_name: LoadBalancer | None = None  # created for it under another cluster name
    sharing: Sharing | None = None
    sharers: tuple[Service, ...] = ()  # of its primary's address
    users: tuple[Service, ...] = ()  # of its own address
    primary_network: str = ""
    holder: Service | None = None  # whose address it shows, as its label says
    is_reserved: bool = True  # whether a load balancer reserves what it shows, as far as is known
    host: Unavailable | None = None  # None: all of Harvester's load balancers are known
    interfaces: Interfaces | Unavailable | None = None  # None: there is no map
    wait: WaitState = WaitState()
    may_be_made_until: datetime | None = None  # by a request without an answer
    is_gone: bool = False  # the service is deleted
    without_macvlan: tuple[
        str, ...
    ] = ()  # nodes that announce services, and lack what a service by DHCP needs
    new_ignored_annotations: tuple[str, ...] = ()  # annotations without effect that were added
    has_new_request: bool = False  # it requests another address or pool than at its last reconcile

    @property
    def held_under_other_name(self) -> frozenset[str]:
        """The addresses that the service shows and that LoadBalancer `other_name` holds; none where it has one of its
        own with an address, unless the cluster has no name of its own."""
        other, own = self.other_name, self.load_balancer
        has_own = (
            own is not None and bool(own.allocated) and self.settings.cluster != names.DEFAULT_CLUSTER_NAME
        )
        if other is None or has_own or self.service.addresses is None:
            return frozenset()
        return self.service.shown & frozenset(other.reserved) - names.DHCP_PLACEHOLDERS

    @property
    def owns_load_balancer(self) -> bool:
        """Whether the LoadBalancer exists, and is labelled as that of this service."""
        return self._owns(self.load_balancer)

    @property
    def owns_second(self) -> bool:
        """The same of the LoadBalancer for its second family."""
        return self._owns(self.second)

    def _owns(self, balancer: LoadBalancer | None) -> bool:
        return balancer is not None and balancer.owner == self.settings.owner_for(self.service)
