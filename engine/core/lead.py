"""The lead of a step: a decode step that begins before the result of the last one is applied."""

from engine.core.kv.ledger import KVLedger
from engine.core.planner import Planner
from engine.core.step import DrawFailure, Outcome, StepPlan, StepResult


class StepLead:
    """Plans the next step as soon as the tokens of the last one are drawn, if it has the same rows.

    A text or a time may still end a sequence, which is found out when the result is applied. Then its row is computed
    in vain.
    """

    def __init__(self, planner: Planner, ledger: KVLedger) -> None:
        self._planner = planner
        self._ledger = ledger
        self._appended: StepPlan | None = None
        self._following: StepPlan | None = None

    def is_possible(self, plan: StepPlan, result: StepResult) -> bool:
        """Return whether a step has drawn one token for each of its sequences, all of them behind their prompts.

        Each can drop a cell if it ends too late.
        """
        if not plan.decode or plan.drafted or result.outcome is not Outcome.DONE:
            return False
        can_trim = self._ledger.traits.can_trim
        return plan is self._following or all(
            not chunk.sequence.unread and (can_trim or not chunk.sequence.output.ends_by_text) for chunk in plan.chunks
        )

    def follow(self, plan: StepPlan, result: StepResult) -> StepPlan | None:
        """Append the drawn tokens. Return the next step, if none of them ends a sequence or fills its slot."""
        self._appended, self._following = plan, None
        if not _append_all(plan, result):
            return None
        rows = [chunk.sequence for chunk in plan.chunks]
        following = self._planner.decode_step(rows, running=len(rows))
        if self._ledger.make_room(following.tokens) and not self._ledger.unclean:
            self._following = following
        return self._following

    def end(self, plan: StepPlan) -> tuple[bool, bool]:
        """End the lead over a step whose result is applied.

        Returns whether its tokens are appended, and whether the next step runs already.
        """
        appended, self._appended = plan is self._appended, None
        followed = appended and self._following is not None
        if not followed:
            self._following = None
        return appended, followed


def _append_all(plan: StepPlan, result: StepResult) -> bool:
    """Append the tokens of a step. Return whether none ends a sequence or fills its slot."""
    goes_on = True
    for chunk, (draw,) in zip(plan.chunks, result.draws, strict=True):
        sequence = chunk.sequence
        sequence.advance(1, result.seconds)
        if isinstance(draw, DrawFailure) or sequence.append(draw) or sequence.full:
            goes_on = False
    return goes_on
