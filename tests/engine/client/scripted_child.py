"""An engine without a model that runs a script. It speaks the real frames on the real pipes.

A request's first prompt or input is its script: verbs parted by `;`, done in order as soon as it arrives. Scripts for
the first, second, … process are parted by `|`; the last one is for all that follow. Verbs:

    accept              refuse FAULT        start               fail                work
    say WORD [CHOICE]   finish [CHOICE]     vector [INPUT]
    wait                the rest waits for a `resume` of another request, or for nothing
    resume              every request that waits goes on
    die SIGNAL          exit CODE           hang                garbage
    on-cancel VERB      what to do in place of the release: `cross` ends the request first, `ignore` does nothing,
                        `late` sends news after the release, or any verb above
    stubborn            from now on the end of stdin is not heard

A query's first text is its script too, of one verb: `ignore`, `no-answer`, any verb above that needs no request, or
anything else, whose bytes are its tokens. Tokens are bytes; a query with one above 255 fails.

The command's arguments are the journal, a file that gets a line for each thing seen, and the script of loading, by
process as above: `ok`, `slow` (half, then nothing), `after FIFO` (once its other end was opened), `refuse`
(`LoadFailed`), `repack SIGNAL` (die unless
`repack` is off), or any verb above.
"""

import os
import signal
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from engine.events import Embedded, Event, Failed, Finished, FinishReason, Released, Started, Text, TokenRun
from engine.info import EngineMetrics, ModelInfo, SlotInfo
from engine.protocol.codec import Decoder, encode
from engine.protocol.fault import Fault
from engine.protocol.messages import (
    Accepted,
    Answered,
    AnyQuery,
    Ask,
    Cancel,
    CancelQuery,
    Configure,
    Detokenize,
    Detokenized,
    Embed,
    FromEngine,
    Generate,
    Inspect,
    Inspected,
    Loaded,
    LoadFailed,
    Loading,
    Message,
    QueryFailed,
    Refused,
    SetLogLevel,
    Step,
    Tokenize,
    Tokenized,
    Working,
)

MODEL = ModelInfo("scripted", 256, 1024, 1024, 4, 0, 0, cells=4 * 512, repacked=True)


@dataclass
class Running:
    """A request that the child has not ended."""

    key: int
    choices: int
    script: deque[str]
    phase: str = "intake"
    tokens: int = 0
    on_cancel: str = ""
    open: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.open = set(range(self.choices))


class ScriptedChild:
    """Reads frames and runs their scripts, in one thread."""

    def __init__(self, journal: Path, load: str) -> None:
        self.journal = journal
        self.life = 1 + (journal.read_text().count("start ") if journal.exists() else 0)
        self.load = load
        self.running: dict[int, Running] = {}
        self.steps = 0
        self.stubborn = False

    def note(self, line: str) -> None:
        with self.journal.open("a") as file:
            file.write(line + "\n")

    def serve(self) -> None:
        self.note(f"start {os.getpid()}")
        decoder = Decoder()
        while data := os.read(0, 1 << 16):
            for message in decoder.feed(data):
                self.receive(message)
        self.note("eof")
        while self.stubborn:
            signal.pause()

    def write(self, message: FromEngine) -> None:
        frame = memoryview(encode(message))
        while frame:
            frame = frame[os.write(1, frame) :]

    def receive(self, message: Message) -> None:
        match message:
            case Configure(config):
                self.note(f"configure repack={config.repack}")
                self.note(f"level {config.log_level}")
                self.note(f"earlier context {config.earlier_context}")
                self.load_model(this_life(self.load, self.life), repack=config.repack)
            case Generate(key, request):
                self.note(f"generate {key} {request.id}")
                self.begin(key, request.parts, str(request.prompts[0]))
            case Embed(key, request):
                self.note(f"embed {key} {request.id}")
                self.begin(key, request.parts, str(request.inputs[0]))
            case Ask(query_id, query):
                self.answer(query_id, query)
            case CancelQuery(query_id):
                self.note(f"cancel-query {query_id}")
            case SetLogLevel(level):
                self.note(f"level {level}")
            case Cancel(key):
                self.note(f"cancel {key}")
                self.cancel(key)

    def begin(self, key: int, parts: int, text: str) -> None:
        script = this_life(text, self.life)
        self.running[key] = Running(key, parts, deque(verb.strip() for verb in script.split(";")))
        self.go_on(self.running[key])

    def answer(self, query_id: int, query: AnyQuery) -> None:
        match query:
            case Inspect():
                self.note("inspect")
                slots = (SlotInfo(0, "idle", None, 0, 0),)
                self.write(Answered(query_id, Inspected(slots, self.metrics())))
            case Tokenize(texts):
                self.note(f"tokenize {query_id}")
                self.tokenize(query_id, [text for text in texts if isinstance(text, str)])
            case Detokenize(tokens):
                self.note(f"detokenize {query_id}")
                wrong = max(tokens) > 255
                self.write(failed(query_id) if wrong else Answered(query_id, Detokenized(bytes(tokens))))

    def tokenize(self, query_id: int, texts: list[str]) -> None:
        match this_life(texts[0], self.life).split():
            case ["ignore"]:
                pass
            case ["no-answer"]:
                self.write(failed(query_id))
            case ["die" | "hang" | "exit", *_] as verb:
                self.do_alone(*verb)
            case _:
                for at, text in enumerate(texts):
                    run = TokenRun(at, tuple(text.encode()))
                    self.write(Answered(query_id, Tokenized(run), more=at + 1 < len(texts)))

    def load_model(self, verb: str, *, repack: bool | None) -> None:
        self.write(Loading(0.5))
        if verb == "slow":
            return
        if verb == "refuse":
            self.write(LoadFailed("/folder/m is no GGUF file"))
            return
        if verb.startswith("after "):
            Path(verb.removeprefix("after ")).read_bytes()
        elif not verb.startswith("repack") or repack is not False:
            self.do_alone(*verb.replace("repack", "die").split())
        self.write(Loaded(MODEL))

    def go_on(self, running: Running) -> None:
        while running.script and running.key in self.running:
            verb, *arguments = running.script.popleft().split()
            if verb == "wait":
                return
            self.do(running, verb, *arguments)

    def do(self, running: Running, verb: str, *arguments: str) -> None:
        match verb, *arguments:
            case "accept", *_:
                running.phase = "queued"
                self.write(Accepted(running.key, (7,)))
            case "refuse", fault:
                self.end(running)
                self.write(Refused(running.key, Fault(fault, "refused as asked", "asked", "prompt")))
            case "start", *_:
                running.phase = "prefill"
                self.step((running.key, Started()))
            case "say", word, *choice:
                running.phase = "decode"
                running.tokens += 1
                self.step((running.key, Text(int(choice[0]) if choice else 0, word)))
            case (("finish" | "vector"), *part):
                self.finish(running, int(part[0]) if part else 0, embeds=verb == "vector")
            case "fail", *_:
                self.end(running)
                self.step((running.key, Failed("failed as asked", "asked")))
            case "on-cancel", *words:
                running.on_cancel = " ".join(words)
            case "resume", *_:
                for other in [other for other in self.running.values() if other is not running]:
                    self.go_on(other)
            case _:
                self.do_alone(verb, *arguments)

    def do_alone(self, verb: str, *arguments: str) -> None:
        """Run a verb that needs no request."""
        match verb, *arguments:
            case "ok", *_:
                pass
            case "die", name:
                os.kill(os.getpid(), signal.Signals[name])
            case "exit", code:
                os._exit(int(code))
            case "hang", *_:
                while True:
                    signal.pause()
            case "work", *_:
                self.write(Working())
            case "garbage", *_:
                os.write(1, b"\x00\x00\x00\x05hello")
            case "stubborn", *_:
                self.stubborn = True
            case _:
                raise ValueError(f"no such verb: {verb} {arguments}")

    def finish(self, running: Running, part: int, *, embeds: bool = False) -> None:
        running.tokens += 1
        running.open.discard(part)
        if not running.open:
            self.end(running)
        end = Embedded(part, bytes([part] * 4)) if embeds else Finished(part, "", FinishReason.STOP, running.tokens, 0)
        self.step((running.key, end))

    def end(self, running: Running) -> None:
        self.note(f"end {running.key}")
        del self.running[running.key]

    def cancel(self, key: int) -> None:
        running = self.running.get(key)
        if running is None:
            self.step((key, Released("gone", 0, 0)))
            return
        match running.on_cancel:
            case "":
                self.release(running)
            case "ignore":
                pass
            case "late":
                self.release(running)
                self.step((key, Text(0, "late")), (key, Finished(0, "", FinishReason.STOP, 99, 0)))
            case "cross":
                for choice in sorted(running.open):
                    self.finish(running, choice)
                self.step((key, Released("gone", running.tokens, 0)))
            case verb:
                self.do(running, *verb.split())

    def release(self, running: Running) -> None:
        self.end(running)
        self.step((running.key, Released(running.phase, running.tokens, 10 + running.tokens)))

    def step(self, *events: tuple[int, Event]) -> None:
        self.steps += any(isinstance(event, Text | Finished | Embedded) for _, event in events)
        self.write(Step(events, self.metrics()))

    def metrics(self) -> EngineMetrics:
        held = len(self.running)
        return EngineMetrics(4, 4 - held, held, 0, 0, 0, self.steps, 0.0, 0, 0, 0)


def failed(query_id: int) -> QueryFailed:
    return QueryFailed(query_id, Fault("RequestError", "failed as asked", "asked", "tokens"))


def this_life(script: str, life: int) -> str:
    by_life = [part.strip() for part in script.split("|")]
    return by_life[min(life, len(by_life)) - 1]


def main() -> None:
    ScriptedChild(Path(sys.argv[1]), sys.argv[2]).serve()
