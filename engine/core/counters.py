"""Counters of the steps since the engine started."""

from dataclasses import dataclass
from itertools import repeat, zip_longest

from engine.core.fair.adapter_turns import AdapterTurns
from engine.core.kv.ledger import KVLedger
from engine.core.step import Outcome, StepPlan, StepResult
from engine.info import EngineMetrics


@dataclass
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
    accepted_by_position: tuple[int, ...] = ()
    """These by their position in the draft."""
    generated_tokens: int = 0
    """Generated tokens of running requests."""
    computed_prompt_tokens: int = 0
    """Computed prompt tokens of running requests."""
    drafts: int = 0
    """Computed drafts, of one or more tokens."""
    preempted: int = 0
    """Sequences that lost their slots before their ends."""
    whole_rows: int = 0
    """Rows whose logits of the whole vocabulary were copied."""
    embeddings: int = 0
    """Finished vectors."""
    embedding_tokens: int = 0
    """Computed tokens of texts to embed."""

    def metrics(self, ledger: KVLedger, turns: AdapterTurns, *, waiting: int) -> EngineMetrics:
        """Return the metrics of a lane of generations, with `waiting` queued sequences."""
        return EngineMetrics(
            **vars(self),
            slots=len(ledger.slots),
            free=ledger.free,
            held=ledger.held,
            waiting=waiting,
            active_tokens=ledger.active_tokens,
            cached_tokens=ledger.cached_tokens,
            stored_tokens=ledger.store.tokens,
            saved_tokens=ledger.store.saved,
            restored_tokens=ledger.store.restored,
            reused_prompt_tokens=ledger.reused,
            adapter_changes=turns.changes,
            adapter_change_seconds=turns.change_seconds or 0.0,
        )

    def count_step(self, outcome: Outcome) -> None:
        """Add a step of any kind."""
        self.steps += 1
        self.aborted += outcome is Outcome.ABORTED

    def count(self, plan: StepPlan, result: StepResult) -> None:
        """Add a step of generations. Unless it is done, it counts no tokens."""
        self.count_step(result.outcome)
        self.step_seconds = result.seconds
        self.whole_rows += result.whole_rows
        if result.outcome is Outcome.DONE:
            decoded = len(result.draws) if plan.decode else 0
            self.rows_decoded += decoded
            self.drafted += plan.drafted
            if plan.drafted:
                self.drafts += sum(bool(chunk.draft) for chunk in plan.chunks)
                for drawn in result.draws:
                    self._count_accepted(len(drawn) - 1)
            self.prompt_tokens += plan.tokens - decoded - plan.drafted

    def _count_accepted(self, tokens: int) -> None:
        """Add a draft whose first tokens are accepted."""
        self.accepted += tokens
        counts = zip_longest(self.accepted_by_position, repeat(1, tokens), fillvalue=0)
        self.accepted_by_position = tuple(map(sum, counts))
