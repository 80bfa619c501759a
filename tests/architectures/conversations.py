"""Conversations with a loaded model through its scheduler: what a turn computes, and what it answers."""

import random
from contextlib import ExitStack
from dataclasses import dataclass, field
from queue import SimpleQueue
from statistics import mean

from engine.config import EngineConfig
from engine.core.kv.prefix_file import FileReport
from engine.core.scheduler import Scheduler
from engine.core.turns import Turns
from engine.events import Finished, TokenDetail
from engine.prompt import PromptText
from engine.request import GenerationRequest, Sampling
from engine.worker.admission import admit
from engine.worker.main import load
from tests.architectures.models import family_model
from tests.engine.driver import at_once
from tests.engine.stepping import step

GREEDY = Sampling(temperature=0.0, ignore_eos=True)
ROUNDING = 0.05
"""Difference of log-probabilities that comes from rounding. Other tokens before an answer make more than 0.5."""
GUARD = 60
REASONING = 10
"""Characters at the beginning of an answer that the next prompt leaves out."""


def words(seed: int, length: int) -> str:
    """Return random letters."""
    return "".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz", k=length))


@dataclass
class Chat:
    """A conversation, and its prompt as a chat template writes it."""

    system: str
    messages: list[str] = field(default_factory=list)
    """Messages of the user and of the model, in turns."""

    def prompt(self) -> PromptText:
        text = f"S {self.system}\n"
        first = last = end = len(text)
        for at, message in enumerate(self.messages):
            last = end
            text += f"{'UM'[at % 2]} {message}\n"
            end = len(text)
        return PromptText(f"{text}M ", (), (first, last, end))


class Served:
    """A model behind its scheduler, as the engine process runs it."""

    def __init__(
        self,
        stack: ExitStack,
        family: str,
        *,
        slots: int = 3,
        store: int = 2**26,
        prefix_dir: str | None = None,
        unified: bool = False,
    ) -> None:
        config = EngineConfig(
            kv_unified=unified,
            model=str(family_model(family)),
            slots=slots,
            context=1024,
            threads=1,
            prefix_store=store,
            prefix_dir=prefix_dir,
            speculation=False,
        )
        self.loaded = load(config, lambda _share: None, stack)
        scheduler = self.loaded.lanes(config)[GenerationRequest].scheduler
        assert isinstance(scheduler, Scheduler)
        self.scheduler = scheduler
        self._reports = SimpleQueue[FileReport]()
        if self.loaded.files:
            self.loaded.files.start(self._reports.put)
        self._turns = Turns(1)
        self._key = 0
        self._finished: dict[int, Finished] = {}

    def add(self, prompt: PromptText, *, tokens: int = 40, cache: bool = True) -> int:
        self._key += 1
        request = GenerationRequest(
            id="t",
            prompts=(prompt,),
            max_tokens=tokens,
            sampling=GREEDY,
            cache_prompt=cache,
            speculative=False,
            logprobs=4,
        )
        self.scheduler.add(at_once(admit(self._key, request, self.loaded.model)))
        return self._key

    def step(self) -> None:
        runner = self.loaded.runner
        assert runner is not None
        for key, event in step(self.scheduler, self._turns, runner):
            if isinstance(event, Finished):
                self._finished[key] = event

    def drain(self) -> None:
        """Step until there is no work, and all files are read and written."""
        while self._deliver() or self.scheduler.busy:
            if self.scheduler.busy:
                self.step()

    def _deliver(self) -> bool:
        """Record what became of files; wait for reads, and for writes if there is no other work."""
        if self.loaded.store and self.loaded.store.reading:
            self.scheduler.ledger.record(self._reports.get(timeout=GUARD))
        elif self.loaded.files and not self.scheduler.busy:
            self.loaded.files.flush(GUARD)
        any_reports = not self._reports.empty()
        while not self._reports.empty():
            self.scheduler.ledger.record(self._reports.get())
        return any_reports

    def finished(self, key: int) -> Finished:
        self.drain()
        return self._finished[key]

    def computed(self) -> int:
        """Return the number of prompt tokens computed so far."""
        return self.scheduler.metrics().computed_prompt_tokens

    def ask(self, chat: Chat) -> tuple[Finished, int]:
        """Return the answer to a conversation, and the number of prompt tokens computed for it."""
        before = self.computed()
        finished = self.finished(self.add(chat.prompt()))
        return finished, self.computed() - before

    def check(self, answer: Finished, chat: Chat) -> None:
        """Check an answer against that of a prompt that is computed as a whole.

        Steps of other shapes, and cells at other places, round otherwise. So the answers may part where two tokens are
        about equally probable, and single probabilities may differ more.
        """
        expected = self.finished(self.add(chat.prompt(), cache=False))
        assert len(answer.details) == len(expected.details)
        differences: list[float] = []
        for mine, other in zip(answer.details, expected.details, strict=True):
            pairs = zip(probabilities(mine), probabilities(other), strict=True)
            differences.append(max(abs(one - another) for one, another in pairs))
            if mine.id != other.id:
                break
        assert differences[0] < ROUNDING
        assert mean(differences) < ROUNDING


def probabilities(detail: TokenDetail) -> list[float]:
    """Return the log-probabilities of the most probable tokens, in descending order."""
    return [one.logprob for one in detail.top]
