"""Fake runner without llama.cpp: deterministic, instant, and strict about the validity of a plan."""

import sys
import threading
from array import array
from collections import defaultdict
from collections.abc import Callable
from itertools import count

from typing_extensions import override

from engine.core.kv.cell_changes import Copy, Forget, Removal, Restore, Rewind, Save, Shift, Swap
from engine.core.kv.prefix_file import Discard, Fetch, FileRead, FileReport, Spill, SpillSlot
from engine.core.sequence import Sequence
from engine.core.step import SCORED_AT_ONCE, Chunk, Draw, Outcome, Runner, StepPlan, StepResult
from engine.core.token import Score, Token
from engine.request import AdapterSet
from engine.testing.fake_constraints import allows, barred_tokens, rest_of
from engine.testing.fake_files import FakeFiles
from engine.testing.fake_model import END, VOCABULARY, FakeModel, adapted, letters, score, weights

Script = Callable[[list[int]], int]
PARTIAL_CELLS = 5
"""Size of a partial state, in cells."""


class FakeRunner(Runner):
    """Records each cell's token, and raises `RuntimeError` for a wrong position, a stale cell or a foreign row."""

    def __init__(
        self, model: FakeModel, *, script: Script = letters, capacity: int | None = None, rewinds: bool = True
    ) -> None:
        """Create a runner.

        Args:
            model: the model, whose traits limit the changes of cells.
            script: returns each next token.
            capacity: the maximum number of cells of all slots together.
            rewinds: whether a model that cannot trim has partial states. A purely recurrent one has none.
        """
        self._model = model
        self._rewinds = rewinds and model.traits.needs_checkpoints
        self._floors: dict[int, int] = {}
        self._drafted: dict[int, int] = {}
        self._script = script
        self._capacity = capacity
        self.cells: dict[int, list[int]] = {}
        """Resident tokens of each `seq_id`."""
        self._places: dict[int, list[int]] = {}
        self._place = count()
        self.saved: dict[int, list[int]] = {}
        """Tokens of the cells saved under each key."""
        self.checkpoints: dict[int, list[int]] = {}
        """Tokens before the partial state saved under each key."""
        self._computed_by: defaultdict[int, AdapterSet] = defaultdict(tuple)
        self._saved_by: dict[int, AdapterSet] = {}
        self.room = sys.maxsize
        """Maximum number of saved cells, partial states included."""
        self.files = FakeFiles()
        """The files."""
        self._reading: set[int] = set()
        self.open: set[Sequence] = set()
        """Sequences with a sampler."""
        self.copied = 0
        """Total number of copied, saved and restored cells, partial states included."""
        self.scored = 0
        """Total number of rows that scored a token."""
        self.passes: list[list[tuple[int, int]]] = []
        """`seq_id` and token count of each chunk of every step so far."""
        self.on_pass: Callable[[StepPlan], None] = lambda _plan: None
        """Called in each step before the computation; may wait, for example on `aborted`."""
        self.aborted = threading.Event()
        """Set by `abort`, cleared by `arm`."""

    @override
    def remove(self, removal: Removal) -> None:
        copied = self._model.traits.windowed and removal.start < self._floors.get(removal.seq_id, 0)
        dropped = len(self.cells.get(removal.seq_id, [])) - removal.start
        most = self._drafted.pop(removal.seq_id, 0)
        drafted = dropped == most + 1 > 1 if self._model.traits.drops_steps else dropped <= most
        if removal.start and (copied or not (self._model.traits.can_trim or drafted)):
            raise RuntimeError("this model cannot drop part of a sequence")
        if not removal.start:
            self._floors[removal.seq_id] = 0
        del self.cells.setdefault(removal.seq_id, [])[removal.start :]
        self._place_cells(removal.seq_id)

    @override
    def shift(self, shift: Shift) -> None:
        cells = self.cells.get(shift.seq_id, [])
        if shift.start < 0 or shift.count < 1 or shift.start + shift.count > len(cells):
            raise RuntimeError(f"slot {shift.seq_id} has {len(cells)} cells: too few for {shift}")
        del cells[shift.start : shift.start + shift.count]
        floor = self._floors.get(shift.seq_id, 0)
        self._floors[shift.seq_id] = max(min(floor, shift.start), floor - shift.count)

    @override
    def copy(self, copy: Copy) -> None:
        source = self.cells.get(copy.source, [])
        wrong = not 1 <= copy.tokens <= len(source) or copy.source == copy.target
        if wrong or (copy.tokens < len(source) and self._model.traits.needs_checkpoints):
            raise RuntimeError(f"slot {copy.source} has {len(source)} cells, not {copy.tokens} to copy")
        shared = self._model.traits.shares_cells
        self._places[copy.target] = self._places[copy.source][: copy.tokens] if shared else []
        self._fill(copy.target, source[: copy.tokens], self._computed_by[copy.source])
        self.copied += 0 if shared else copy.tokens

    @override
    def swap(self, swap: Swap) -> None:
        one, other = self.cells.get(swap.one, []), self.cells.get(swap.other, [])
        if not one or not other or swap.one == swap.other:
            raise RuntimeError(f"slots {swap.one} and {swap.other} have no cells to exchange")
        if self._model.traits.pool is not None:
            raise RuntimeError("no exchange is needed where all slots share their cells")
        by = self._computed_by
        one_by, other_by = by[swap.one], by[swap.other]
        self._fill(swap.one, other, other_by)
        self._fill(swap.other, one, one_by)
        self.copied += len(one) + len(other)

    @override
    def save(self, save: Save) -> bool:
        cells = self.cells.get(save.seq_id, [])
        if not cells or save.key in self.saved or save.key in self.checkpoints:
            raise RuntimeError(f"{len(cells)} cells of slot {save.seq_id} to save under the key {save.key}")
        if save.partial and not self._rewinds:
            raise RuntimeError("this model has no partial states")
        size = PARTIAL_CELLS if save.partial else len(cells)
        if sum(map(len, self.saved.values())) + PARTIAL_CELLS * len(self.checkpoints) + size > self.room:
            return False
        (self.checkpoints if save.partial else self.saved)[save.key] = cells.copy()
        self._saved_by[save.key] = self._computed_by[save.seq_id]
        self.copied += size
        return True

    @override
    def restore(self, restore: Restore) -> None:
        self._check_read(restore.key)
        saved = self.saved.get(restore.key, [])
        if not 1 <= restore.tokens <= len(saved) or (
            restore.tokens < len(saved) and self._model.traits.needs_checkpoints
        ):
            raise RuntimeError(f"{len(saved)} cells are saved under {restore.key}, not {restore.tokens} to restore")
        self._places[restore.seq_id] = []
        self._fill(restore.seq_id, saved.copy(), self._saved_by[restore.key])
        self._fill(restore.seq_id, saved[: restore.tokens], self._saved_by[restore.key])
        self.copied += len(saved)

    @override
    def rewind(self, rewind: Rewind) -> None:
        self._check_read(rewind.key)
        saved, cells = self.checkpoints.get(rewind.key, []), self.cells.get(rewind.seq_id, [])
        if not saved or rewind.tokens != len(saved) or cells[: rewind.tokens] != saved:
            raise RuntimeError(f"slot {rewind.seq_id} never was where the checkpoint {rewind.key} is")
        self._fill(rewind.seq_id, saved.copy(), self._saved_by[rewind.key])
        self.copied += PARTIAL_CELLS

    @override
    def forget(self, forget: Forget) -> None:
        self.saved.pop(forget.key, None)
        self.checkpoints.pop(forget.key, None)
        self._saved_by.pop(forget.key, None)
        self._reading.discard(forget.key)

    @override
    def spill(self, spill: Spill) -> None:
        self._check_read(spill.key)
        cells = (self.checkpoints if spill.file.partial else self.saved).get(spill.key)
        self.files.write(spill.file, cells, self._saved_by.get(spill.key, ()))

    @override
    def spill_slot(self, spill: SpillSlot) -> None:
        self.files.write(spill.file, self.cells.get(spill.seq_id, []), self._computed_by[spill.seq_id])

    @override
    def fetch(self, fetch: Fetch) -> None:
        if fetch.key in self.saved or fetch.key in self.checkpoints:
            raise RuntimeError(f"cells to read under the key {fetch.key}, which has some")
        (self.checkpoints if fetch.file.partial else self.saved)[fetch.key] = fetch.file.prefix.tokens
        self._saved_by[fetch.key] = self.files.computed_by.get(fetch.file.name, ())
        self._reading.add(fetch.key)
        self.files.read(fetch.file, fetch.key)

    @override
    def discard(self, discard: Discard) -> None:
        self.files.delete(discard.name)

    def take_reports(self) -> list[FileReport]:
        """Return what became of files. From now on the cells that were read can be used."""
        reports = self.files.take_reports()
        for report in reports:
            if isinstance(report, FileRead) and report.found:
                self._reading.discard(report.key)
        return reports

    @override
    def read_cells(self, seq_id: int) -> bytes:
        return array("i", self.cells[seq_id]).tobytes()

    @override
    def write_cells(self, seq_id: int, cells: bytes, tokens: int) -> bool:
        if self.cells.get(seq_id):
            raise RuntimeError(f"slot {seq_id} is not empty")
        if len(cells) != tokens * array("i").itemsize:
            return False
        self._places[seq_id] = []
        self._fill(seq_id, array("i", cells).tolist(), ())
        self._floors[seq_id] = tokens
        return True

    @override
    def run(self, plan: StepPlan) -> StepResult:
        """Run one step, with a reported duration of one second."""
        self._check(plan)
        self.passes.append([(chunk.seq_id, chunk.count) for chunk in plan.chunks])
        self.on_pass(plan)
        if self.aborted.is_set():
            return StepResult(Outcome.ABORTED, (), 1.0)
        wanted = sum(map(len, self.cells.values())) + plan.tokens
        if self._capacity is not None and wanted > self._capacity:
            return StepResult(Outcome.NO_ROOM, (), 1.0)
        self._computed_by.update(dict.fromkeys((chunk.seq_id for chunk in plan.chunks), plan.adapters))
        self._drafted.update((chunk.seq_id, len(chunk.draft)) for chunk in plan.chunks)
        scores = tuple(self._compute(chunk) for chunk in plan.chunks)
        draws = tuple(self._draws(chunk) for chunk in plan.chunks if chunk.sample)
        self.scored += sum(map(len, scores))
        requested = (of_chunk for chunk, of_chunk in zip(plan.chunks, scores, strict=True) if chunk.score)
        outputs = sum(chunk.sample + len(chunk.scored) for chunk in plan.chunks) + plan.drafted
        return StepResult(Outcome.DONE, draws, 1.0, tuple(requested), outputs)

    @override
    def abort(self) -> None:
        self.aborted.set()

    @override
    def arm(self) -> None:
        self.aborted.clear()

    @override
    def close(self, sequence: Sequence) -> None:
        self.open.discard(sequence)

    def _fill(self, seq_id: int, cells: list[int], adapters: AdapterSet) -> None:
        """Replace the cells of a slot by copied ones, which were computed with these adapters."""
        self.cells[seq_id] = cells
        self._computed_by[seq_id] = adapters
        self._floors[seq_id] = len(cells)
        self._drafted[seq_id] = 0
        self._place_cells(seq_id)

    def _place_cells(self, seq_id: int) -> None:
        """Give each cell of a slot that has none a place of its own in the pool.

        Raises:
            RuntimeError: the pool has no room for them.
        """
        places, size = self._places.setdefault(seq_id, []), len(self.cells[seq_id])
        del places[size:]
        places += (next(self._place) for _ in range(size - len(places)))
        pool = self._model.traits.pool
        if pool is not None and (used := len(set().union(*self._places.values()))) > pool:
            raise RuntimeError(f"{used} cells in a pool of {pool}")

    def _check_read(self, key: int) -> None:
        if key in self._reading:
            raise RuntimeError(f"the cells under the key {key} are still being read")

    def _compute(self, chunk: Chunk) -> tuple[Score, ...]:
        """Fill the cells and return the scores of the rows."""
        sequence = chunk.sequence
        cells = self.cells.setdefault(chunk.seq_id, [])
        cells += chunk.tokens
        self._place_cells(chunk.seq_id)
        return tuple(
            self._score(sequence, cells[:at], token) for at, token in enumerate(chunk.scored, start=chunk.start + 1)
        )

    def _score(self, sequence: Sequence, before: list[int], token: int) -> Score:
        return score(weights(before, self._next(sequence, before)), token, sequence.request.logprobs or 0)

    def _next(self, sequence: Sequence, before: list[int]) -> int:
        return adapted(self._script(before), sequence.adapters)

    def _draws(self, chunk: Chunk) -> tuple[Draw, ...]:
        """Return the sampled tokens: one after the last known token, and one more for each accepted draft token."""
        cells = self.cells[chunk.seq_id]
        known = chunk.start + chunk.count
        drawn: list[Draw] = []
        for accepted, drafted in enumerate([*chunk.draft, None]):
            drawn.append(token := self._draw(chunk.sequence, cells[: known + accepted]))
            if token.id != drafted or token.ends:
                break
        return tuple(drawn)

    def _draw(self, sequence: Sequence, cells: list[int]) -> Token:
        self.open.add(sequence)
        due = sequence.reasoning.due if sequence.reasoning else ()
        forced = bool(due) and allows(sequence, cells, due)
        token = due[0] if forced else self._choose(sequence, cells)
        if sequence.reasoning:
            sequence.reasoning.accept(self._model.piece(token, special=True), forced=forced)
        piece = self._model.piece(token, special=sequence.request.show_special)
        if sequence.request.logprobs is None:
            return Token(token, piece, ends=token == END)
        return Token(token, piece, token == END, *self._score(sequence, cells, token))

    def _choose(self, sequence: Sequence, cells: list[int]) -> int:
        """Return the token of the grammar or the script, else the most probable one allowed."""
        if isinstance(sequence.grammar, bytes):
            return rest_of(sequence.grammar, sequence, cells)[0]
        barred = barred_tokens(sequence, cells)
        scripted = self._next(sequence, cells)
        if scripted not in barred:
            return scripted
        shares = weights(cells, scripted)
        return max((token for token in range(VOCABULARY) if token not in barred), key=shares.__getitem__)

    def _check(self, plan: StepPlan) -> None:
        ids = [chunk.seq_id for chunk in plan.chunks]
        if not ids or ids != sorted(set(ids)) or not 0 <= ids[0] <= ids[-1] < self._model.info.slots:
            raise RuntimeError(f"a plan with invalid slots {ids}")
        if sum(len(chunk.scored) for chunk in plan.chunks) > SCORED_AT_ONCE:
            raise RuntimeError("a plan that scores more rows than a step can")
        for chunk in plan.chunks:
            self._check_adapters(chunk, plan.adapters)
            self._check_chunk(chunk)

    def _check_adapters(self, chunk: Chunk, adapters: AdapterSet) -> None:
        if chunk.sequence.adapters != adapters:
            raise RuntimeError(f"slot {chunk.seq_id} has other adapters than its step")
        if self.cells.get(chunk.seq_id) and self._computed_by[chunk.seq_id] != adapters:
            raise RuntimeError(f"the cells of slot {chunk.seq_id} were computed with other adapters")

    def _check_chunk(self, chunk: Chunk) -> None:
        sequence = chunk.sequence
        resident = self.cells.get(chunk.seq_id, [])
        if resident != sequence.tokens[: chunk.start]:
            raise RuntimeError(f"slot {chunk.seq_id} has other cells than the computed tokens of its sequence")
        if not 1 <= chunk.count <= sequence.pending or len(resident) + len(chunk.tokens) > self._model.info.context:
            raise RuntimeError(f"{len(chunk.tokens)} tokens do not fit in slot {chunk.seq_id}")
        if chunk.draft and not (chunk.sample and len(chunk.draft) <= self._model.traits.max_draft):
            raise RuntimeError(f"draft tokens in slot {chunk.seq_id} without sampling, or that cannot be dropped")
        if chunk.sample and chunk.count < sequence.pending:
            raise RuntimeError(f"sampling in slot {chunk.seq_id} after a token that is not its sequence's last")
        if chunk.score and (sequence.request.logprobs is None or not chunk.scored):
            raise RuntimeError(f"no rows to score in slot {chunk.seq_id}")
