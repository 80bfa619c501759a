#!/usr/bin/env python3
"""The time of a decode step with a cache for each slot, and with one cache for all slots.

python -m tests.benchmarks.unified_cache --model MODEL.gguf [--unified] [--steps 8]
"""

import argparse
import time
from contextlib import ExitStack

from engine.config import EngineConfig
from engine.core.step import Outcome
from engine.llama.batch import Batch
from engine.llama.context import LlamaContext
from engine.llama.memory.parameters import BATCH_ROWS, all_cells, context_params
from engine.llama.model import LlamaModel
from engine.llama.state import State, read_state, write_state

SLOTS, CONTEXT, CHUNK = 8, 4096, 512
CASES = {
    "one sequence of 64 tokens": ({0: 64}, {}),
    "one of 64, seven idle ones of 2,048": ({0: 64}, dict.fromkeys(range(1, SLOTS), 2048)),
    "one of 2,048": ({0: 2048}, {}),
    "one of 2,048, seven idle ones of 2,048": ({0: 2048}, dict.fromkeys(range(1, SLOTS), 2048)),
    "eight of 64": (dict.fromkeys(range(SLOTS), 64), {}),
    "eight of 512": (dict.fromkeys(range(SLOTS), 512), {}),
    "eight of 2,048": (dict.fromkeys(range(SLOTS), 2048), {}),
    "one of 2,048 and seven of 64": ({0: 2048} | dict.fromkeys(range(1, SLOTS), 64), {}),
    "four of 512 in every second slot": (dict.fromkeys(range(0, SLOTS, 2), 512), {}),
}
"""The tokens of the sequences that decode, and of those that only hold their cells, by slot."""


class Cells:
    """A context, and the cells that are put into its slots."""

    def __init__(self, model: LlamaModel, config: EngineConfig, stack: ExitStack) -> None:
        params = context_params(config, all_cells(SLOTS, CONTEXT), model.attention, full_windows=True)
        self.context = stack.enter_context(LlamaContext(model, config, params, purpose="a benchmark"))
        self._batch = Batch(BATCH_ROWS, model.info.vocabulary)
        self._states: dict[int, State] = {}
        self._unified = config.kv_unified

    def clear(self) -> None:
        for slot in range(SLOTS):
            self.context.remove(slot, 0)

    def fill(self, slot: int, tokens: int) -> None:
        """Fill a slot with cells of its own. The first time they are computed."""
        if tokens in self._states:
            write_state(self.context.handle, slot, self._states[tokens])
            return
        for start in range(0, tokens, CHUNK):
            self.step({slot: start}, min(CHUNK, tokens - start))
        self._states[tokens] = read_state(self.context.handle, slot)

    def share(self, tokens: int) -> float:
        """Give the cells of the first slot to all others. Return the seconds."""
        began = time.perf_counter()
        for slot in range(1, SLOTS):
            if self._unified:
                self.context.share(0, slot, tokens)
            else:
                write_state(self.context.handle, slot, read_state(self.context.handle, 0))
        return time.perf_counter() - began

    def step(self, starts: dict[int, int], count: int = 1) -> float:
        """Compute tokens in some slots. Return the seconds."""
        self._batch.clear()
        for slot, start in sorted(starts.items()):
            self._batch.add([10 + at % 1000 for at in range(count)], seq_id=slot, start=start, output=True)
        began = time.perf_counter()
        if self.context.decode(self._batch) is not Outcome.DONE:
            raise SystemExit("the step was not computed")
        return time.perf_counter() - began

    def decode(self, sizes: dict[int, int], steps: int) -> float:
        """Return the seconds of the fastest of some decode steps."""
        return min(self.step({slot: size + at for slot, size in sizes.items()}) for at in range(steps))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--unified", action="store_true")
    parser.add_argument("--steps", type=int, default=8)
    arguments = parser.parse_args()
    config = EngineConfig(model=arguments.model, slots=SLOTS, context=CONTEXT, kv_unified=arguments.unified)
    with ExitStack() as stack:
        cells = Cells(stack.enter_context(LlamaModel(config, lambda _share: None)), config, stack)
        for name, (busy, idle) in CASES.items():
            cells.clear()
            for slot, tokens in (idle | busy).items():
                cells.fill(slot, tokens)
            print(f"{name}: {cells.decode(busy, arguments.steps) * 1000:.0f} ms", flush=True)
        cells.clear()
        cells.fill(0, 2048)
        shared = cells.share(2048)
        seconds = cells.decode(dict.fromkeys(range(SLOTS), 2048), arguments.steps)
        print(f"eight with the same 2,048: {seconds * 1000:.0f} ms, after {shared * 1000:.1f} ms to share or copy them")


if __name__ == "__main__":
    main()
