"""Conversations with shared system prompts, by clients of a running server that wait for each answer."""

import http.client
import json
import time
from bisect import bisect
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from random import Random

GUARD = 100.0
"""Seconds after which a client gives up."""
SYLLABLES = [letter + vowel for letter in "bcdfgklmnprst" for vowel in "aeiou"]


@dataclass(frozen=True, kw_only=True)
class Load:
    """The conversations. The same seed makes the same ones."""

    conversations: int
    """Number of conversations."""
    clients: int
    """Conversations that go on at the same time."""
    turns: int = 4
    """Turns of each."""
    systems: int = 8
    """System prompts, whose popularity is Zipf's with exponent 1."""
    system_words: int = 300
    """Words of a system prompt; each is about a token."""
    words: int = 30
    """Words of a message."""
    answer: int = 16
    """Tokens of an answer."""
    pause: float = 0.5
    """Mean seconds before the next message; exponential."""
    seed: int = 1
    """Begins the random numbers."""

    def run(self, port: int) -> list[float]:
        """Let the clients talk to a server, and return the seconds to the first token of each request, in order."""
        random = Random(self.seed)
        systems = [words(random, self.system_words) for _ in range(self.systems)]
        ranks = list(accumulate(1 / rank for rank in range(1, self.systems + 1)))
        waiting = deque(
            (systems[bisect(ranks, random.random() * ranks[-1])], random.random()) for _ in range(self.conversations)
        )

        def client() -> Iterator[float]:
            while waiting:
                system, seed = waiting.popleft()
                yield from self._talk(port, system, Random(seed))

        with ThreadPoolExecutor(self.clients) as threads:
            running = [threads.submit(lambda: list(client())) for _ in range(self.clients)]
            return sorted(seconds for one in running for seconds in one.result())

    def _talk(self, port: int, prompt: str, random: Random) -> Iterator[float]:
        for turn in range(self.turns):
            if turn:
                time.sleep(random.expovariate(1 / self.pause))
            prompt += words(random, self.words)
            seconds, text = ask(port, prompt, self.answer)
            prompt += text
            yield seconds


def words(random: Random, number: int) -> str:
    """Return random words."""
    return "".join(f" {random.choice(SYLLABLES)}" for _ in range(number))


def ask(port: int, prompt: str, tokens: int) -> tuple[float, str]:
    """Return the seconds until the first token of a stream, and its text."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=GUARD)
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True}
    begun, first, text = time.perf_counter(), 0.0, ""
    try:
        connection.request("POST", "/v1/completions", json.dumps(body))
        response = connection.getresponse()
        for line in response:
            if line.startswith(b"data: {"):
                first = first or time.perf_counter() - begun
                text += json.loads(line[6:])["choices"][0]["text"]
    finally:
        connection.close()
    if response.status != http.HTTPStatus.OK or not first:
        raise RuntimeError(f"status {response.status}")
    return first, text
