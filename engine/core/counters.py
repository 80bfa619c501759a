"""Counters of the passes since the engine started."""

from dataclasses import dataclass

from engine.core.step import Outcome, StepPlan, StepResult


@dataclass(slots=True)
class Counters:
    """Counted like the fields of the same names in `engine.events`."""

    steps: int = 0
    step_seconds: float = 0.0
    rows_decoded: int = 0
    prompt_tokens: int = 0
    aborted: int = 0
    drafted: int = 0
    accepted: int = 0

    def count(self, plan: StepPlan, result: StepResult) -> None:
        """Add a pass. One that was aborted or found no room has computed nothing."""
        self.steps += 1
        self.step_seconds = result.seconds
        self.aborted += result.outcome is Outcome.ABORTED
        if result.outcome is Outcome.DONE:
            decoded = sum(chunk.sample for chunk in plan.chunks) if plan.decode else 0
            drafted = sum(len(chunk.draft) for chunk in plan.chunks)
            self.rows_decoded += decoded
            self.drafted += drafted
            self.accepted += sum(len(drawn) - 1 for drawn in result.draws)
            self.prompt_tokens += plan.tokens - decoded - drafted
