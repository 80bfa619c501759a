"""Counters of the passes since the engine started."""

from dataclasses import dataclass

from engine.core.step import Outcome, StepPlan, StepResult


@dataclass(slots=True)
class Counters:
    """Counters of one lane, named as in `engine.events`."""

    steps: int = 0
    step_seconds: float = 0.0
    rows_decoded: int = 0
    prompt_tokens: int = 0
    aborted: int = 0
    drafted: int = 0
    accepted: int = 0
    embeddings: int = 0
    embedding_tokens: int = 0

    def count_step(self, outcome: Outcome) -> None:
        """Add a pass of any kind."""
        self.steps += 1
        self.aborted += outcome is Outcome.ABORTED

    def count(self, plan: StepPlan, result: StepResult) -> None:
        """Add a pass of generations. One that was aborted or found no room has computed nothing."""
        self.count_step(result.outcome)
        self.step_seconds = result.seconds
        if result.outcome is Outcome.DONE:
            decoded = sum(chunk.sample for chunk in plan.chunks) if plan.decode else 0
            drafted = sum(len(chunk.draft) for chunk in plan.chunks)
            self.rows_decoded += decoded
            self.drafted += drafted
            self.accepted += sum(len(drawn) - 1 for drawn in result.draws)
            self.prompt_tokens += plan.tokens - decoded - drafted
