"""The CPU time of a prompt step by its tokens and its depth, and of a decode step, with and without flash attention.

    python -m tests.benchmarks.prompt_steps --model MODEL.gguf [--chunks 16,64,128] [--depths 0,512,1920] [--rows 8]

The engine computes with one thread, so that its CPU time is that of the work, on a busy machine too. Prints the
milliseconds of the fastest of some steps, and for prompts the tokens per second.
"""

import argparse
import subprocess
import sys
import time

from engine.config import EngineConfig
from engine.core.kv.cell_changes import Copy, Removal
from engine.core.sequence import Sequence
from engine.core.step import Chunk, StepPlan
from engine.llama.model import LlamaModel
from engine.llama.runner import LlamaRunner
from engine.request import Sampling
from tests.engine.driver import running

_ON_THE_WAY = 256
"""Tokens of the steps that lead to a depth."""


class Steps:
    """Steps of sequences that begin alike, and their CPU time."""

    def __init__(self, runner: LlamaRunner, rows: int, tokens: int, repeats: int) -> None:
        """Begin with nothing computed: `rows` sequences of at most so many tokens."""
        self._runner = runner
        self._repeats = repeats
        greedy, prompt = Sampling(temperature=0.0, ignore_eos=True), [3 + 7 * at % 250 for at in range(tokens)]
        self._sequences = [running(seq_id, prompt, sampling=greedy) for seq_id in range(rows)]
        self._depth = 0

    def descend(self, depth: int) -> None:
        """Compute so many tokens of all sequences."""
        first, *others = self._sequences
        while self._depth < depth:
            count = min(_ON_THE_WAY, depth - self._depth)
            self._run([first], count)
            self._depth += count
            first.computed = self._depth
        for other in others if depth else ():
            self._runner.cache.remove(Removal(other.seq_id, 0))
            self._runner.cache.copy(Copy(first.seq_id, other.seq_id, depth))
            other.computed = depth

    def prompt(self, tokens: int) -> float:
        """Return the seconds of a prompt step of one sequence."""
        return self._fastest(self._sequences[:1], tokens)

    def decode(self) -> float:
        """Return the seconds of a decode step of all sequences."""
        return self._fastest(self._sequences, 1)

    def _fastest(self, sequences: list[Sequence], count: int) -> float:
        times = []
        for _ in range(self._repeats):
            times.append(self._run(sequences, count))
            for sequence in sequences:
                self._runner.cache.remove(Removal(sequence.seq_id, self._depth))
        return min(times)

    def _run(self, sequences: list[Sequence], count: int) -> float:
        plan = StepPlan(tuple(Chunk(one, count, sample=count == 1) for one in sequences), decode=count == 1)
        began = time.process_time()
        self._runner.run(plan)
        return time.process_time() - began


def measure(args: argparse.Namespace, *, flash: bool) -> None:
    """Print the times with one implementation of attention."""
    chunks, depths = ([int(number) for number in text.split(",")] for text in (args.chunks, args.depths))
    tokens = max(chunks) + max(depths)
    config = EngineConfig(
        model=args.model, slots=args.rows, context=tokens, threads=1, threads_batch=1, flash_attention=flash
    )
    with LlamaModel(config, lambda _share: None) as model, LlamaRunner(model, config) as runner:
        steps = Steps(runner, args.rows, tokens, args.repeats)
        for depth in depths:
            steps.descend(depth)
            times = [(count, steps.prompt(count)) for count in chunks]
            cells = ", ".join(f"{count}: {took * 1e3:.0f} ({count / took:.0f}/s)" for count, took in times)
            print(f"depth {depth}: {cells}; {args.rows} decode rows: {steps.decode() * 1e3:.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--chunks", default="16,32,63,64,96,128,256", help="tokens of the prompt steps")
    parser.add_argument("--depths", default="0,256,512,1024,1920", help="tokens before them, ascending")
    parser.add_argument("--rows", type=int, default=8, help="of the decode step")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--flash-attention", choices=("on", "off"), help="only this one, in this process")
    args = parser.parse_args()
    if args.flash_attention:
        measure(args, flash=args.flash_attention == "on")
        return
    for choice in ("on", "off"):
        print(f"--flash-attention {choice}: milliseconds of CPU", flush=True)
        subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.prompt_steps", *sys.argv[1:], "--flash-attention", choice],
            check=True,
        )


if __name__ == "__main__":
    main()
