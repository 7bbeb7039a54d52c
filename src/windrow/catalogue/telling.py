"""Saying how a NodeDriver stands: in its status, and where it is news also as an event and in the log."""

from __future__ import annotations

import logging

from windrow.catalogue.kinds import NODE_DRIVER
from windrow.catalogue.plan import Plan, Seen
from windrow.catalogue.standing import derive_status, headline
from windrow.client.client import Client
from windrow.client.recording import Recorder, Told
from windrow.kube.objects import Raw, is_deleting
from windrow.kube.patches import make_merge_patch
from windrow.values.chance import Chance
from windrow.values.clock import Clock

log = logging.getLogger(__name__)


class Teller:
    """Status, event and log use the same sentence."""

    def __init__(self, api: Client, clock: Clock, chance: Chance) -> None:
        self._api = api
        self._recorder = Recorder(api, "windrow-catalogue", clock, chance)
        self._told: dict[str, tuple[str, str, str]] = {}

    def forget(self, name: str) -> None:
        """The object is gone; another of its name is news."""
        self._told.pop(name, None)

    async def say(self, raw: Raw, seen: Seen, plan: Plan) -> Raw:
        """Write how it stands, where that has changed. Returns the object as it is then."""
        wanted = derive_status(seen, plan)
        before = dict(seen.driver.status)
        had = {key: before[key] for key in wanted if key in before}
        change = make_merge_patch(had, {key: value for key, value in wanted.items() if value is not None})
        if not change or (is_deleting(raw) and not seen.driver.is_claimed):
            return raw
        ref = NODE_DRIVER.ref(seen.driver.name)
        raw = await self._api.patch(ref, {"status": change}, subresource="status")
        await self._tell(seen, plan)
        return raw

    async def _tell(self, seen: Seen, plan: Plan) -> None:
        condition = headline(seen, plan)
        message = str(plan.fault) if plan.fault is not None else condition.message
        news = (condition.status, condition.reason, message)
        tries_again = seen.trouble is not None and seen.trouble.asked == seen.asked and plan.fault is None
        if self._told.get(seen.driver.name) == news or (tries_again and condition.status != "True"):
            return
        self._told[seen.driver.name] = news
        bad = plan.fault is not None
        log.log(logging.WARNING if bad else logging.INFO, "NodeDriver %s: %s", seen.driver.name, message)
        about = NODE_DRIVER.ref(seen.driver.name)
        told = Told(about, seen.driver.uid, condition.reason, message, "Warning" if bad else "Normal")
        await self._recorder.tell(told)
