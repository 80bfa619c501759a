"""Training from scratch to a GGUF file in an hour: `python -m engine.embedded.training.train`.

Generates text, trains a tokenizer and a network on it, writes `tiny.gguf`, checks that llama.cpp and PyTorch compute
the same, and evaluates the result on the held-out set. The seed determines everything. An interrupted run continues
from its last checkpoint when it is started again with the same `--work`.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from tqdm import tqdm

from engine.embedded import path
from engine.embedded.training import batches, evaluation, tokenizer
from engine.embedded.training.check import LARGEST_DIFFERENCE, agreement
from engine.embedded.training.corpus import examples, first_lessons, last_lessons, polish
from engine.embedded.training.corpus.draw import Draw
from engine.embedded.training.corpus.example import Completion
from engine.embedded.training.export import export
from engine.embedded.training.llama_cpp_reader import Reader
from engine.embedded.training.network import Network, Shape
from engine.embedded.training.template import render
from engine.embedded.training.tokenizer import Tokenizer


@dataclass(frozen=True)
class Recipe:
    """Hyperparameters of the training. They determine a run completely."""

    seed: int = 1
    """Seed of the network and of all examples."""
    merges: int = 762
    """Number of merges of the tokenizer."""
    tokenizer_examples: int = 20_000
    """Number of examples for the training of the tokenizer."""
    steps: int = 3_600
    """Number of training steps, without those of `polish`, which follow."""
    first_lessons: int = 500
    """Number of steps with `first_lessons` at the start."""
    last_lessons: int = 1_350
    """Number of steps with `last_lessons` at the end of `steps`."""
    polish: int = 500
    """Number of final steps with `polish`."""
    tokens_per_step: int = 4_000
    """Approximate number of tokens of one step."""
    cells_per_batch: int = 8_192
    """Maximum number of elements of a batch tensor."""
    stretched: float = 0.25
    """Share of examples with gaps in their positions."""
    stretched_at_last: float = 0.5
    """Share of such examples in `last_lessons` and `polish`."""
    rate: float = 0.003
    """Peak learning rate of the layers' matrices."""
    embedding_rate: float = 0.002
    """Peak learning rate of embedding and norms."""
    warm_up: int = 50
    """Number of warm-up steps of the learning rate."""
    decay_from: float = 0.4
    """Share of `steps` after which the learning rate decays."""
    polish_share: float = 0.3
    """Learning rate at the start of `polish`, as a share of the peak."""
    weight_decay: float = 0.1
    """Weight decay of the layers' matrices."""
    checkpoint_every: int = 250
    """Number of steps between checkpoints."""


class Optimizers:
    """Muon (Jordan et al., 2024) for the layers' matrices, AdamW for embedding and norms.

    Both follow one schedule: warm-up, constant rate, decay to zero; then a short second decay from a small rate.
    """

    def __init__(self, network: Network, recipe: Recipe) -> None:
        self.recipe = recipe
        matrices = [module.weight for module in network.blocks.modules() if isinstance(module, nn.Linear)]
        others = [module.weight for module in network.modules() if isinstance(module, nn.Embedding | nn.RMSNorm)]
        self._all = (
            torch.optim.Muon(
                matrices, lr=recipe.rate, weight_decay=recipe.weight_decay, adjust_lr_fn="match_rms_adamw"
            ),
            torch.optim.AdamW(others, lr=recipe.embedding_rate, weight_decay=0.0, betas=(0.9, 0.98)),
        )
        self._peaks = (recipe.rate, recipe.embedding_rate)

    def step(self, step: int) -> None:
        """Apply the gradients with the learning rate of `step`, and clear them."""
        share = self._share(step)
        for optimizer, peak in zip(self._all, self._peaks, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = peak * share
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def _share(self, step: int) -> float:
        """Return the learning rate of a step as a share of the peak."""
        recipe = self.recipe
        if step >= recipe.steps:
            return recipe.polish_share * (1 - (step - recipe.steps) / recipe.polish)
        rising = (step + 1) / recipe.warm_up
        falling = (1 - step / recipe.steps) / (1 - recipe.decay_from)
        return min(1.0, rising, falling)

    def state(self) -> list[dict[str, object]]:
        """Return the state for a checkpoint."""
        return [optimizer.state_dict() for optimizer in self._all]

    def restore(self, states: list[dict[str, object]]) -> None:
        """Restore a result of `state`."""
        for optimizer, state in zip(self._all, states, strict=True):
            optimizer.load_state_dict(state)


def texts(draw: Draw, count: int) -> Iterator[str]:
    """Yield the first `count` examples as text."""
    for one in islice(examples(draw), count):
        yield one.prompt + one.answer if isinstance(one, Completion) else render(one.messages, one.tools, ask=False)


def learn_tokenizer(recipe: Recipe) -> Tokenizer:
    """Return a tokenizer trained on the corpus."""
    return tokenizer.train(texts(Draw(recipe.seed, held_out=False), recipe.tokenizer_examples), recipe.merges)


def loss(network: Network, batch: batches.Batch) -> Tensor:
    """Return the summed cross-entropy of the answers' tokens."""
    hidden = network.hidden(batch.tokens[:, :-1], batch.positions[:, :-1])
    learned = batch.learned[:, 1:]
    return functional.cross_entropy(
        network.logits(hidden[learned]).float(), batch.tokens[:, 1:][learned], reduction="sum"
    )


def train(network: Network, words: Tokenizer, recipe: Recipe, checkpoint: Path) -> None:
    """Train in place. Resumes from `checkpoint` if it exists, and updates it. Shows a progress bar."""
    optimizers, first, average = Optimizers(network, recipe), 0, 0.0
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        first = saved["step"]
        network.load_state_dict(saved["network"])
        optimizers.restore(saved["optimizers"])
    last = recipe.steps + recipe.polish
    progress = tqdm(range(first, last), initial=first, total=last, desc="training", unit="step")
    for step in progress:
        now = accumulate_gradients(network, lesson(step, words, recipe, network.shape.context))
        optimizers.step(step)
        average = now if step == first else 0.98 * average + 0.02 * now
        progress.set_postfix(loss=f"{average:.4f}")
        if (step + 1) % recipe.checkpoint_every == 0 or step + 1 == last:
            state = {"step": step + 1, "network": network.state_dict(), "optimizers": optimizers.state()}
            torch.save(state, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)


def lesson(step: int, words: Tokenizer, recipe: Recipe, context: int) -> list[batches.Batch]:
    """Return the batches of `step`; always the same, so that a resumed run gives the same result."""
    draw = Draw(recipe.seed + 1 + step, held_out=False)
    if step < recipe.first_lessons:
        source, stretched = first_lessons(draw), 0.0
    elif step < recipe.steps - recipe.last_lessons:
        source, stretched = examples(draw), recipe.stretched
    else:
        lessons = last_lessons if step < recipe.steps else polish
        source, stretched = lessons(draw), recipe.stretched_at_last
    return batches.batches(source, draw, recipe.tokens_per_step, recipe.cells_per_batch, words, context, stretched)


def accumulate_gradients(network: Network, made: list[batches.Batch]) -> float:
    """Add the gradients of the mean loss over all answer tokens of `made`, and return this loss."""
    answers = sum(int(batch.learned.sum()) for batch in made)
    total = 0.0
    for batch in made:
        with torch.autocast("cpu", torch.bfloat16):
            part = loss(network, batch) / answers
        part.backward()
        total += part.item()
    return total


def check(network: Network, words: Tokenizer, file: Path) -> None:
    """Compare the exported file with the network.

    Raises:
        ValueError: They are not the same model.
    """
    found = agreement(network, words, Reader(file, every_logit=True), list(texts(Draw(0, held_out=True), 100)))
    tqdm.write(f"logits: llama.cpp and PyTorch differ by {found.largest:.3f} at most over {found.tokens} tokens")
    if found.largest > LARGEST_DIFFERENCE:
        raise ValueError("the exported file does not compute what the network does")


def judge(file: Path, each: int) -> bool:
    """Print the evaluation of `file` with `each` cases per skill. Returns True if every skill reaches its threshold."""
    reader = Reader(file)
    chosen = tqdm(evaluation.cases(each), total=each * len(evaluation.THRESHOLDS), desc="evaluation", unit="case")
    scores = evaluation.evaluate(chosen, reader.complete, reader.chat)
    tqdm.write(evaluation.table(scores))
    return all(score.passed for score in scores)


def main() -> None:
    """Run every stage. Exits with code 1 if the model misses a threshold."""
    parser = argparse.ArgumentParser(prog="python -m engine.embedded.training.train", description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("build/embedded"), help="tokenizer and checkpoints")
    parser.add_argument("--out", type=Path, default=path(), help="the GGUF file to write")
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cases", type=int, default=500, help="held-out cases per skill in the evaluation")
    given = parser.parse_args()

    recipe = replace(Recipe(), steps=given.steps)
    given.work.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(recipe.seed)
    torch.set_num_threads(given.threads)

    merges = given.work / "merges.txt"
    if not merges.exists():
        merges.write_text("\n".join(learn_tokenizer(recipe).lines()), encoding="utf-8")
    words = Tokenizer.parse(merges.read_text(encoding="utf-8").splitlines())
    network = Network(Shape(len(words)))
    train(network, words, recipe, given.work / "checkpoint.pt")
    export(network, words, given.out)
    check(network, words, given.out)
    sys.exit(0 if judge(given.out, given.cases) else 1)


if __name__ == "__main__":
    main()
