"""The time of a draw, by the settings of the request.

    python -m tests.benchmarks.draw_cost --model MODEL.gguf [--rows 32] [--threads 1]

Only the vocabulary of the model is used: the logits are random, with 40 tokens in each row above the others, as real
models have them. Each figure is the median of a step, divided by its rows.
"""

import argparse
import statistics
import time
from contextlib import closing
from functools import partial

import numpy as np
from numpy.typing import NDArray

from engine.config import EngineConfig
from engine.core.sequence import Sequence
from engine.llama.drawing import Drawer, Outputs, outputs_of_all
from engine.llama.model import LlamaModel
from engine.request import GenerationRequest, Sampling
from engine.sampling.candidates import Logits

STEPS = 9
LIKELY = 40
SETTINGS = {
    "greedy": Sampling(temperature=0),
    "temperature 1": Sampling(),
    "temperature 0.8": Sampling(temperature=0.8),
    "top_p 0.95": Sampling(temperature=0.6, top_p=0.95),
    "top_k 40, top_p 0.95, min_p 0.05": Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05),
    "min_p 0.05": Sampling(min_p=0.05),
    "frequency_penalty 0.5": Sampling(frequency_penalty=0.5),
}


def logits_of(rows: int, vocabulary: int) -> NDArray[np.float32]:
    """Return random logits, a row for each sequence."""
    generator = np.random.default_rng(1)
    logits = generator.normal(0, 2, (rows, vocabulary))
    for row in logits:
        row[generator.integers(0, vocabulary, LIKELY)] += generator.uniform(5, 14, LIKELY)
    return logits.astype(np.float32)


def _outputs(logits: Logits, rows: slice) -> Outputs:
    return outputs_of_all(logits[rows])


def seconds(model: LlamaModel, sampling: Sampling, rows: int, threads: int) -> float:
    """Return the median time of the draws of a step."""
    request = GenerationRequest(id="bench", prompts=("",), sampling=sampling)
    sequences = [Sequence(request, 0, [1, 2, 3] * 100, 100) for _ in range(rows)]
    logits, times = logits_of(rows, model.info.vocabulary), []
    with closing(Drawer(model, threads)) as drawer:
        for _ in range(1 + STEPS):
            changed = logits.copy()
            began = time.perf_counter()
            drawer.draw_rows(sequences, partial(_outputs, changed))
            times.append(time.perf_counter() - began)
    return statistics.median(times[1:])  # the first one makes the samplers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--threads", type=int, default=1, help="that share out the rows, as where a device computes")
    args = parser.parse_args()
    with LlamaModel(EngineConfig(model=args.model, slots=1, repack=False), lambda _share: None) as model:
        for name, sampling in SETTINGS.items():
            print(f"{name:34}{seconds(model, sampling, args.rows, args.threads) / args.rows * 1e6:6.0f} µs", flush=True)


if __name__ == "__main__":
    main()
