"""A simulated replica: slots, cached prefixes and their eviction as in the engine's ledger, and measured speeds."""

from bisect import bisect
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.benchmarks.routing.workload import Conversation

PREFILL = 159.0
"""Tokens per second of a prompt alone (tests/benchmarks/README.md: 108 beside streams are 0.68 of it)."""
CHUNK = 64
"""Tokens of a prompt between two decode steps, while other sequences decode."""
STEPS = ((0, 0.0), (1, 0.0218), (8, 0.130), (16, 0.148), (24, 0.211), (32, 0.246))
"""Rows and seconds of a decode step (tests/benchmarks/README.md: limits and shares of the throughput)."""
WORTH_SAVING, WORTH_COPYING, COPY_COST = 128, 16, 64
"""As in engine/core/kv."""
_DONE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Size of every replica."""

    slots: int = 8
    """Sequences at the same time."""
    store: int = 32768
    """Tokens of prefixes in host memory."""
    queue: int = 64
    """Requests that may wait."""


@dataclass(slots=True, eq=False)
class Prefix:
    """The first tokens of a conversation."""

    conversation: Conversation
    """The conversation."""
    tokens: int
    """Number of tokens."""

    def common(self, other: "Prefix") -> int:
        """Return the number of common first tokens."""
        mine, others = self.conversation, other.conversation
        if mine is others:
            return min(self.tokens, other.tokens)
        return min(self.tokens, other.tokens, mine.shared) if mine.system == others.system else 0


@dataclass(slots=True, eq=False)
class Job:
    """One request."""

    wanted: Prefix
    """Its prompt."""
    answer: int
    """Tokens of its answer."""
    arrived: float
    """Time of its arrival."""
    router: int = 0
    """Number of the router that has sent it."""
    turn: int = 0
    """Turn of its conversation."""
    cached: int = 0
    """Prompt tokens that were not computed."""
    left: float = 0.0
    """Tokens of its phase that remain."""
    decodes: bool = False
    """True after its prompt."""
    first: float | None = None
    """Time of its first token."""

    @property
    def computed(self) -> int:
        """Tokens that have cells."""
        return self.wanted.tokens if self.decodes else int(self.wanted.tokens - self.left)


@dataclass(slots=True, eq=False)
class Slot:
    """One slot."""

    holder: Job | None = None
    """The request that has it."""
    cached: Prefix | None = None
    """The prefix in it while it is free."""
    used: int = 0
    """For the least recently used."""

    @property
    def prefix(self) -> Prefix | None:
        """Blocks that other requests may reuse."""
        return Prefix(self.holder.wanted.conversation, self.holder.computed) if self.holder else self.cached


@dataclass(slots=True, eq=False)
class Replica:
    """One replica. `advance` brings it to a time; `next_event` is when something ends in it."""

    machine: Machine
    """Its size."""
    slots: list[Slot] = field(default_factory=list)
    """Its slots."""
    store: list[Prefix] = field(default_factory=list)
    """Its prefixes in host memory, least recently used first."""
    waiting: deque[Job] = field(default_factory=deque)
    """Its queue."""
    now: float = 0.0
    """Time up to which it is computed."""
    next_event: float = float("inf")
    """Time at which the next request changes its phase."""
    computed: int = 0
    """Prompt tokens computed so far."""
    changed: bool = False
    """True if it holds other prefixes than at the last report."""
    _clock: int = 0
    _rates: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        self.slots = [Slot() for _ in range(self.machine.slots)]

    @property
    def requests(self) -> int:
        """Requests that it has."""
        return len(self.waiting) + sum([slot.holder is not None for slot in self.slots])

    def held(self) -> Iterator[Prefix]:
        """Iterate over all prefixes that it holds."""
        yield from (prefix for slot in self.slots if (prefix := slot.prefix))
        yield from self.store

    def add(self, job: Job) -> bool:
        """Queue a request. Return False if the queue is full. `advance` must have brought it to this time."""
        if len(self.waiting) >= self.machine.queue:
            return False
        self.waiting.append(job)
        self._start()
        return True

    def advance(self, now: float) -> list[Job]:
        """Bring it to a time, which is not after `next_event`. Return the requests that have ended."""
        seconds, self.now = now - self.now, now
        prefill, decode = self._rates
        ended = []
        for slot in self.slots:
            if job := slot.holder:
                job.left -= seconds * (decode if job.decodes else prefill)
                if job.left <= _DONE and not job.decodes:
                    job.decodes, job.left, job.first = True, job.answer, now
                    self.changed = True
                elif job.left <= _DONE:
                    ended.append(job)
                    self._release(slot, job)
        self._start()
        return ended

    def _start(self) -> None:
        while self.waiting and any(slot.holder is None for slot in self.slots):
            self._lease(self.waiting.popleft())
        running = [slot.holder for slot in self.slots if slot.holder]
        decoding = sum([job.decodes for job in running])
        prompts = len(running) - decoding
        step = step_seconds(decoding)
        cycle = step + (CHUNK / PREFILL if prompts else 0.0)
        prefill = (PREFILL if not decoding else CHUNK / cycle) / prompts if prompts else 0.0
        self._rates = prefill, 1 / cycle if decoding else 0.0
        times = [max(job.left, 0.0) / self._rates[job.decodes] for job in running]
        self.next_event = self.now + min(times, default=float("inf"))

    def _lease(self, job: Job) -> None:
        """Give a slot to a request, as `KVLedger.lease` and `copy_prefix` do."""
        wanted = job.wanted
        source = max(self.slots, key=lambda slot: slot.prefix.common(wanted) if slot.prefix else 0)
        shared = source.prefix.common(wanted) if source.prefix else 0
        slot = self._place(source if source.prefix and 2 * shared >= source.prefix.tokens else None)
        old, slot.cached = slot.cached, None
        kept = min(old.common(wanted), wanted.tokens - 1) if old else 0
        best = max(self.held(), key=wanted.common, default=None)
        copied = min(best.common(wanted), wanted.tokens - 1) if best else 0
        job.cached = kept
        if best and copied - kept >= max(WORTH_COPYING, best.tokens // COPY_COST):
            job.cached = copied - best.tokens // COPY_COST  # the copy takes time
            self._use(best)
        if old:
            self._save(old, stays=kept)
        job.left = wanted.tokens - job.cached
        self.computed += wanted.tokens - job.cached
        slot.holder = job
        self.changed = True

    def _place(self, source: Slot | None) -> Slot:
        held = [False, *(slot.holder is not None for slot in self.slots), False]

        def cost(at: int) -> tuple[int, bool, int, int]:
            slot = self.slots[at]
            return -held[at] - held[at + 2], slot is not source, slot.used if slot.cached else 0, at

        return self.slots[min((at for at, slot in enumerate(self.slots) if slot.holder is None), key=cost)]

    def _save(self, old: Prefix, *, stays: int) -> None:
        """Save the prefix of a slot, if what would be lost is worth it."""
        elsewhere = max((one.common(old) for one in self.held()), default=0)
        if old.tokens - max(stays, elsewhere) < WORTH_SAVING:
            return
        self.store = [one for one in self.store if one.common(old) < one.tokens]
        self.store.append(old)
        size = sum([one.tokens for one in self.store])
        while size > self.machine.store:
            size -= self.store.pop(0).tokens

    def _use(self, prefix: Prefix) -> None:
        if prefix in self.store:
            self.store.remove(prefix)
            self.store.append(prefix)

    def _release(self, slot: Slot, job: Job) -> None:
        self._clock += 1
        slot.cached = Prefix(job.wanted.conversation, job.wanted.tokens + job.answer)
        slot.holder, slot.used, self.changed = None, self._clock, True


def step_seconds(rows: int) -> float:
    """Return the seconds of a decode step, between the measured ones along a line."""
    at = max(min(bisect(STEPS, (rows, float("inf"))), len(STEPS) - 1), 1)
    (low, fast), (high, slow) = STEPS[at - 1], STEPS[at]
    return fast + (rows - low) / (high - low) * (slow - fast)
