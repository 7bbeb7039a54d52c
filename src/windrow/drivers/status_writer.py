"""Saying how a NodeDriver stands: in its status, and where it is news also as an event and in the log."""

from __future__ import annotations

import logging

from windrow.client.client import Client
from windrow.client.events import EventNote, EventRecorder
from windrow.core.clock import Clock
from windrow.core.rng import Rng
from windrow.drivers.kinds import NODE_DRIVER
from windrow.drivers.plan import NodeDriverState, Plan
from windrow.drivers.status import derive_status, summary_condition
from windrow.kubernetes.objects import Raw, is_deleting
from windrow.kubernetes.patches import make_merge_patch

log = logging.getLogger(__name__)


class StatusWriter:
    """Status, event and log use the same sentence."""

    def __init__(self, api: Client, clock: Clock, rng: Rng) -> None:
        self._api = api
        self._recorder = EventRecorder(api, "windrow-catalogue", clock, rng)
        self._recorded: dict[str, tuple[str, str, str]] = {}

    def forget(self, name: str) -> None:
        """The object is gone; another of its name is news."""
        self._recorded.pop(name, None)

    async def write(self, raw: Raw, state: NodeDriverState, plan: Plan) -> Raw:
        """Write how it stands, where that has changed. Returns the object as it is then."""
        status = derive_status(state, plan)
        before = dict(state.driver.status)
        had = {key: before[key] for key in status if key in before}
        change = make_merge_patch(had, {key: value for key, value in status.items() if value is not None})
        if not change or (is_deleting(raw) and not state.driver.has_finalizer):
            return raw
        ref = NODE_DRIVER.ref(state.driver.name)
        raw = await self._api.patch(ref, {"status": change}, subresource="status")
        await self._record_event(state, plan)
        return raw

    async def _record_event(self, state: NodeDriverState, plan: Plan) -> None:
        condition = summary_condition(state, plan)
        message = str(plan.fault) if plan.fault is not None else condition.message
        content = (condition.status, condition.reason, message)
        is_retry = state.failure is not None and state.failure.inputs == state.inputs and plan.fault is None
        if self._recorded.get(state.driver.name) == content or (is_retry and condition.status != "True"):
            return
        self._recorded[state.driver.name] = content
        is_fault = plan.fault is not None
        log.log(
            logging.WARNING if is_fault else logging.INFO, "NodeDriver %s: %s", state.driver.name, message
        )
        ref = NODE_DRIVER.ref(state.driver.name)
        told = EventNote(
            ref, state.driver.uid, condition.reason, message, "Warning" if is_fault else "Normal"
        )
        await self._recorder.write(told)
