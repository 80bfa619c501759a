"""The lead of a step: a decode step that begins before the result of the last one is applied."""

from engine.core.kv.ledger import KVLedger
from engine.core.planner import Planner
from engine.core.running import RunningSequences
from engine.core.step import DrawFailure, StepPlan, StepResult


class StepLead:
    """Plans the next step as soon as the tokens of the last one are drawn, if it has the same rows.

    A text or a time may still end a sequence, which is found out when the result is applied. Then its row is computed
    in vain. What is known of the next step before the draws is prepared while the last one runs.
    """

    def __init__(self, planner: Planner, ledger: KVLedger, running: RunningSequences) -> None:
        self._planner = planner
        self._ledger = ledger
        self._running = running
        self._appended: StepPlan | None = None
        self._following: StepPlan | None = None
        self._prepared: tuple[StepPlan, StepPlan] | None = None

    def is_possible(self, plan: StepPlan) -> bool:
        """Return whether the step after this one may have the same rows, and no other sequence may be in it.

        It draws one token for each of its sequences, all of them behind their prompts. Each can drop a cell if it ends
        too late.
        """
        if not plan.decode or plan.drafted or not self._keeps_rows(plan):
            return False
        can_trim = self._ledger.traits.can_trim
        return plan is self._following or all(
            not chunk.sequence.unread and (can_trim or not chunk.sequence.output.ends_by_text) for chunk in plan.chunks
        )

    def prepare(self, plan: StepPlan) -> None:
        """Prepare the step after one that runs, if it is possible and needs no change of cells."""
        following = self._planner.step_after(plan) if self.is_possible(plan) else None
        if following and self._ledger.fits(plan.tokens + following.tokens) and not self._ledger.unclean:
            self._prepared = plan, following

    def take_prepared(self, plan: StepPlan) -> StepPlan | None:
        """Return the step that is prepared for after this one, if it is still right."""
        prepared, self._prepared = self._prepared, None
        if prepared is None or prepared[0] is not plan or not self._keeps_rows(plan) or self._ledger.unclean:
            return None
        return prepared[1]

    def follow(self, plan: StepPlan, result: StepResult, prepared: StepPlan | None) -> StepPlan | None:
        """Append the drawn tokens. Return the next step, if none of them ends a sequence or fills its slot."""
        self._appended, self._following = plan, None
        if not _append_all(plan, result):
            return None
        rows = [chunk.sequence for chunk in plan.chunks]
        if prepared:
            following = self._planner.with_drafts(prepared, rows)
        else:
            following = self._planner.decode_step(rows, running=len(rows))
        if following is prepared or (self._ledger.make_room(following.tokens) and not self._ledger.unclean):
            self._following = following
        return self._following

    def end(self, plan: StepPlan) -> tuple[bool, StepPlan | None]:
        """End the lead over a step whose result is applied.

        Returns whether its tokens are appended, and the next step if it runs already.
        """
        appended, self._appended = plan is self._appended, None
        if not appended:
            self._following = None
        return appended, self._following

    def _keeps_rows(self, plan: StepPlan) -> bool:
        """Return whether all sequences that run are in a step, and no other one can start."""
        return len(plan.chunks) == len(self._running) and not self._running.can_admit


def _append_all(plan: StepPlan, result: StepResult) -> bool:
    """Append the tokens of a step. Return whether none ends a sequence or fills its slot."""
    goes_on = True
    for chunk, (draw,) in zip(plan.chunks, result.draws, strict=True):
        sequence = chunk.sequence
        sequence.advance(1, result.seconds)
        if isinstance(draw, DrawFailure) or sequence.append(draw) or sequence.full:
            goes_on = False
    return goes_on
