"""CPU time of a decision and memory of a router of many replicas."""

import time
import tracemalloc
from random import Random

from gateway.routing.blocks import PromptScope, text_blocks
from gateway.routing.report import HeldBlocks
from gateway.routing.router import PrefixRouter

DECISIONS = 2000


def measure(replicas: int, held: int = 1000, shared: int = 16, blocks: int = 64) -> dict[str, float]:
    """Return microseconds of a decision and of a block's hash, and the bytes that the router has for each held block.

    Args:
        replicas: number of replicas.
        held: blocks that each of them holds.
        shared: blocks of a system prompt that all of them hold.
        blocks: blocks of each prompt.
    """
    router = PrefixRouter[int](Random(1), linger=0)
    router.update_replicas(dict.fromkeys(range(replicas), 8))
    tracemalloc.start()
    for replica in range(replicas):
        log = HeldBlocks(1)
        log.update({*range(shared), *range(10**9 * (replica + 1), 10**9 * (replica + 1) + held - shared)})
        router.receive(replica, log.report())
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    random = Random(2)
    prompts = [(*range(shared), *range(start, start + blocks - shared)) for start in _starts(random, replicas)]
    start = time.process_time()
    for now, prompt in enumerate(prompts):
        router.end(router.route(prompt, now), now)
    decision = (time.process_time() - start) / DECISIONS
    start = time.process_time()
    hashes = len(text_blocks("x" * 2**18, PromptScope("m")))
    return {
        "decision_us": decision * 1e6,
        "hash_us": (time.process_time() - start) / hashes * 1e6,
        "bytes_per_block": size / (replicas * held),
    }


def _starts(random: Random, replicas: int) -> list[int]:
    return [10**9 * (1 + random.randrange(replicas)) for _ in range(DECISIONS)]
