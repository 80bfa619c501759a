"""The least server of this program's kind: ASGI on Hypercorn and Trio, and llama.cpp in a child process.

It shows what the speed of one client can be at most. It answers one streaming completion of token ids at a time, takes
the likeliest token, and checks nothing. `tests.benchmarks.one_client --least` starts it.
"""

import argparse
import ctypes
import os
import sys

import llama_cpp
import numpy as np
import orjson
import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.types import Receive, Scope, Send

CONTEXT, SLOTS = 4096, 4
END = b"end"
"""Line behind the pieces of an answer. The others are in hexadecimal."""
CHUNK = {
    "id": "cmpl-0123456789abcdef0123456789abcdef",
    "object": "text_completion",
    "created": 1_800_000_000,
    "model": "least",
}


def compute(requests: int, pieces: int, model: str, threads: int) -> None:
    """Compute requests, a line of JSON each, and write the text of each token as a line."""
    params = llama_cpp.llama_model_default_params()
    params.use_extra_bufts = False
    handle = llama_cpp.llama_model_load_from_file(os.fsencode(model), params)
    vocabulary = llama_cpp.llama_model_get_vocab(handle)
    size = llama_cpp.llama_vocab_n_tokens(vocabulary)
    shape = llama_cpp.llama_context_default_params()
    shape.n_ctx, shape.n_seq_max, shape.n_threads, shape.n_threads_batch = CONTEXT, SLOTS, threads, threads
    context = llama_cpp.llama_init_from_model(handle, shape)
    text = ctypes.create_string_buffer(256)
    with os.fdopen(requests) as lines:
        for line in lines:
            asked = orjson.loads(line)
            llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), False)
            tokens = asked["prompt"] if isinstance(asked["prompt"], list) else [0]
            for _ in range(asked["max_tokens"]):
                rows = (llama_cpp.llama_token * len(tokens))(*tokens)
                llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(rows, len(rows)))
                logits = np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(context, -1), (size,))
                tokens = [int(logits.argmax())]
                length = llama_cpp.llama_token_to_piece(vocabulary, tokens[0], text, len(text), 0, True)
                os.write(pieces, text.raw[: max(length, 0)].hex().encode() + b"\n")
            os.write(pieces, END + b"\n")


class App:
    """The ASGI application."""

    def __init__(self, requests: int, pieces: int) -> None:
        self._requests = requests
        self._pieces = trio.lowlevel.FdStream(pieces)
        self._send, self._lines = trio.open_memory_channel[bytes](CONTEXT)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a completion, whatever the path is."""
        if scope["type"] == "lifespan":
            while (event := (await receive())["type"]) != "lifespan.shutdown":
                await send({"type": f"{event}.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message["body"], message["more_body"]
        os.write(self._requests, orjson.dumps(orjson.loads(body)) + b"\n")
        head = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        async for line in self._lines:
            if line == END:
                break
            choice = {"index": 0, "text": bytes.fromhex(line.decode()).decode(errors="replace"), "finish_reason": None}
            event = b"data: " + orjson.dumps({**CHUNK, "choices": [choice]}) + b"\n\n"
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    async def forward(self) -> None:
        """Give the pieces to the request that waits for them."""
        rest = b""
        async for data in self._pieces:
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                await self._send.send(line)


async def run(app: App, port: int) -> None:
    config = Config()
    config.bind, config.accesslog, config.loglevel = [f"127.0.0.1:{port}"], None, "warning"
    async with trio.open_nursery() as tasks:
        tasks.start_soon(app.forward)
        await serve(app, config)  # type: ignore[arg-type]
        tasks.cancel_scope.cancel()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args, _ = parser.parse_known_args()
    (requests, to_child), (from_child, pieces) = os.pipe(), os.pipe()
    if os.fork():
        os.close(requests)
        os.close(pieces)
        trio.run(run, App(to_child, from_child), args.port)
    else:
        os.close(to_child)
        os.close(from_child)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # llama.cpp's log
        compute(requests, pieces, args.model, args.threads)


if __name__ == "__main__":
    main()
