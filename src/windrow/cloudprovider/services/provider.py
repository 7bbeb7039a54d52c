"""The service controller: an address from Harvester for each service of type LoadBalancer."""

from __future__ import annotations

from collections.abc import Callable

from windrow.client.client import Client
from windrow.client.transport import Transport
from windrow.cloudprovider.flags import Options
from windrow.cloudprovider.measures import Measures
from windrow.values.chance import Chance
from windrow.values.clock import Clock

Say = Callable[[str], None]


class ServiceProvider:
    """Keeps the load balancers of one guest cluster in step with its services, while it runs."""

    def __init__(
        self,
        guest: Transport,
        host: Transport,
        namespace: str,
        options: Options,
        clock: Clock,
        chance: Chance,
        say: Say,
        measures: Measures | None = None,
    ) -> None:
        self._guest = Client(guest)
        self._host = Client(host)
        self._namespace = namespace
        self._options = options
        self._clock = clock
        self._chance = chance
        self._say = say
        self._measures = measures or Measures()

    async def run(self) -> None:
        """Work until cancelled."""
        self._say("services of type LoadBalancer are not handled yet")
