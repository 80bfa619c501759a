"""Counters of the steps since the engine started."""

from dataclasses import dataclass

from engine.core.step import Outcome, StepPlan, StepResult


@dataclass(slots=True)
class Counters:
    """Counters of one lane, with the names of `EngineMetrics`."""

    steps: int = 0
    """Steps of any outcome."""
    step_seconds: float = 0.0
    """Duration of the last step of generations."""
    rows_decoded: int = 0
    """Rows of decode steps that drew a token."""
    prompt_tokens: int = 0
    """All other computed tokens, without draft tokens."""
    aborted: int = 0
    """Aborted steps."""
    drafted: int = 0
    """Computed draft tokens."""
    accepted: int = 0
    """Accepted draft tokens."""
    embeddings: int = 0
    """Finished vectors."""
    embedding_tokens: int = 0
    """Computed tokens of texts to embed."""

    def count_step(self, outcome: Outcome) -> None:
        """Add a step of any kind."""
        self.steps += 1
        self.aborted += outcome is Outcome.ABORTED

    def count(self, plan: StepPlan, result: StepResult) -> None:
        """Add a step of generations. Unless it is done, it counts no tokens."""
        self.count_step(result.outcome)
        self.step_seconds = result.seconds
        if result.outcome is Outcome.DONE:
            decoded = sum(chunk.sample for chunk in plan.chunks) if plan.decode else 0
            drafted = sum(len(chunk.draft) for chunk in plan.chunks)
            self.rows_decoded += decoded
            self.drafted += drafted
            self.accepted += sum(len(drawn) - 1 for drawn in result.draws)
            self.prompt_tokens += plan.tokens - decoded - drafted
