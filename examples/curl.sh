#!/usr/bin/env bash
# Every route, by curl. Needs: curl and nothing else.
# Usage: examples/curl.sh [URL of a running server]
set -euo pipefail
url=${1:-http://localhost:8000}

show() { printf '\n$ curl %s\n' "$*"; curl --silent --show-error "$@"; printf '\n'; }

# Ready for requests, and for probes: the process lives, and it is ready. The version of the server.
show "$url/health"
show "$url/v1/health"
show "$url/livez"
show "$url/readyz"
show "$url/ping"
show "$url/version"
show "$url/v1/models"
show "$url/v1/models/default"

# A chat: whole, and streamed, with its token counts at the end.
show "$url/v1/chat/completions" -d '{
  "messages": [{"role": "user", "content": "What is 17 plus 25?"}], "temperature": 0
}'
show --no-buffer "$url/v1/chat/completions" -d '{
  "messages": [{"role": "user", "content": "Hello!"}], "temperature": 0,
  "stream": true, "stream_options": {"include_usage": true}
}'

# How many tokens a chat has, without an answer.
show "$url/v1/chat/completions/input_tokens" -d '{"messages": [{"role": "user", "content": "What is 17 plus 25?"}]}'

# A tool: the model answers with a call. Its result goes back as a message of the role "tool".
tools='[{"type": "function", "function": {
  "name": "add", "description": "Add two numbers.",
  "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]
  }
}}]'
show "$url/v1/chat/completions" -d '{
  "messages": [{"role": "user", "content": "What is 17 plus 25?"}], "tools": '"$tools"', "temperature": 0
}'
show "$url/v1/chat/completions" -d '{
  "messages": [
    {"role": "user", "content": "What is 17 plus 25?"},
    {"role": "assistant", "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{\"a\": 17, \"b\": 25}"}}
    ]},
    {"role": "tool", "tool_call_id": "call_1", "content": "42"}
  ], "tools": '"$tools"', "temperature": 0
}'

# An answer forced to fit a schema, and one forced to match a regular expression.
show "$url/v1/chat/completions" -d '{
  "messages": [{"role": "user", "content": "How was the soup? It was cold."}], "temperature": 0,
  "response_format": {"type": "json_schema", "json_schema": {"name": "review", "strict": true, "schema": {
    "type": "object", "properties": {"stars": {"type": "integer", "minimum": 1, "maximum": 5}},
    "required": ["stars"], "additionalProperties": false
  }}}
}'
show "$url/v1/chat/completions" -d '{
  "messages": [{"role": "user", "content": "What is 17 plus 25?"}], "temperature": 0, "guided_regex": "\\d+\\+\\d+=\\d+"
}'

# A call of a custom tool, whose input is a text that matches a grammar. Reasoning, if the model does it, has a limit.
show "$url/v1/chat/completions" -d '{
  "messages": [{"role": "user", "content": "What is 17 plus 25?"}], "temperature": 0, "reasoning_budget": 100,
  "tools": [{"type": "custom", "custom": {"name": "calculate", "format": {"type": "grammar", "grammar": {
    "syntax": "lark", "definition": "start: INT (\" + \" INT)+\n%import common.INT"
  }}}}], "tool_choice": {"type": "custom", "custom": {"name": "calculate"}}, "max_tokens": 50
}'

# A response: the server stores it until it is deleted. The next one names it, and sends only the new input.
show "$url/v1/responses/input_tokens" -d '{"input": "Hello!"}'
answer=$(show "$url/v1/responses" -d '{"input": "Hello!", "temperature": 0}')
printf '%s\n' "$answer"
id=$(grep --only-matching 'resp_[0-9a-f]*' <<<"$answer")
show "$url/v1/responses/$id"
show "$url/v1/responses/$id/input_items"
show --no-buffer "$url/v1/responses" -d '{
  "input": "What is 17 plus 25?", "previous_response_id": "'"$id"'", "temperature": 0, "stream": true,
  "truncation": "auto"
}'
show "$url/v1/responses/$id" -X DELETE

# A response in the background: the answer comes at once. It runs until it is complete or cancelled.
answer=$(show "$url/v1/responses" -d '{"input": "Count to 200.", "background": true}')
printf '%s\n' "$answer"
id=$(grep --only-matching 'resp_[0-9a-f]*' <<<"$answer")
show "$url/v1/responses/$id/cancel" -X POST

# A conversation: the server keeps its items. A response reads them, and adds its own.
answer=$(show "$url/v1/conversations" -d '{"metadata": {"topic": "sums"}, "items": [{"role": "user", "content": "Hello!"}]}')
printf '%s\n' "$answer"
id=$(grep --only-matching 'conv_[0-9a-f]*' <<<"$answer")
show "$url/v1/conversations/$id"
show "$url/v1/conversations/$id" -d '{"metadata": {"topic": "greetings"}}'
show "$url/v1/responses" -d '{"conversation": "'"$id"'", "temperature": 0}'
answer=$(show "$url/v1/conversations/$id/items" -d '{"items": [{"role": "user", "content": "What is 17 plus 25?"}]}')
printf '%s\n' "$answer"
item=$(grep --only-matching --max-count=1 'msg_[0-9a-f]*' <<<"$answer" | head -1)
show "$url/v1/conversations/$id/items?order=asc&limit=2"
show "$url/v1/conversations/$id/items/$item"
show "$url/v1/conversations/$id/items/$item" -X DELETE
show "$url/v1/conversations/$id" -X DELETE

# A completion: whole, and two answers to each of two prompts, streamed.
show "$url/v1/completions" -d '{"prompt": "17+25=", "max_tokens": 32, "temperature": 0}'
show --no-buffer "$url/v1/completions" -d '{
  "prompt": ["Once upon a time", "The dog"], "n": 2, "max_tokens": 8, "seed": 7,
  "stream": true, "stream_options": {"include_usage": true}
}'

# Anthropic's messages: whole, streamed, and only counted.
message='"model": "default", "messages": [{"role": "user", "content": "What is 17 plus 25?"}]'
show "$url/v1/messages" -d '{'"$message"', "max_tokens": 32, "temperature": 0}'
show --no-buffer "$url/v1/messages" -d '{'"$message"', "max_tokens": 32, "temperature": 0, "stream": true}'
show "$url/v1/messages/count_tokens" -d '{'"$message"'}'

# The simple route, whole and streamed.
show "$url/generate" -d '{"prompt": "Once upon a time", "max_tokens": 32}'
show --no-buffer "$url/generate" -d '{"prompt": "Once upon a time", "max_tokens": 8, "stream": true}'

# llama-server's own routes: a completion, whole and streamed, embeddings, and OpenAI's routes without the version.
show "$url/completion" -d '{"prompt": "17+25=", "n_predict": 32, "temperature": 0, "response_fields": ["content", "timings"]}'
show --no-buffer "$url/completions" -d '{
  "prompt": [1, "Once upon a time"], "n_predict": 4, "stream": true, "n_probs": 2, "return_progress": true
}'
show "$url/embedding" -d '{"content": "hello"}' --output /dev/null --write-out '%{http_code}\n'
show "$url/embeddings" -d '{"input": ["hello", [1, "goodbye"]]}' --output /dev/null --write-out '%{http_code}\n'
show "$url/chat/completions" -d '{"messages": [{"role": "user", "content": "Hello!"}], "n_predict": 16}'
show "$url/chat/completions/input_tokens" -d '{"messages": [{"role": "user", "content": "Hello!"}]}'
show "$url/responses" -d '{"input": "Hello!", "max_output_tokens": 16}'
show "$url/responses/input_tokens" -d '{"input": "Hello!"}'

# Embeddings, shortened to 4 numbers each; text to tokens and back; the prompt that the template makes of a chat.
show "$url/v1/embeddings" -d '{"input": ["hello", "goodbye"], "dimensions": 4}'
show "$url/tokenize" -d '{"content": "17+25=42", "with_pieces": true}'
show "$url/detokenize" -d '{"tokens": [49, 55, 43, 50, 53]}'
show "$url/tokenizer_info"
show "$url/apply-template" -d '{"messages": [{"role": "user", "content": "Hello!"}]}'

# Re-ranking, in the shapes of Jina, TEI and Cohere. It needs a model with a classifier (Qwen3-Reranker); any
# other refuses it.
ranking='{"query": "pets", "documents": ["a cat", "the sun"], "top_n": 1}'
show "$url/v1/rerank" -d "$ranking"
show "$url/rerank" -d "$ranking"
show "$url/reranking" -d "$ranking"
show "$url/v1/reranking" -d "$ranking"
show "$url/v2/rerank" -d "$ranking"

# Ollama's API: whole and streamed, as lines of JSON.
show "$url/api/chat" -d '{"model": "default", "messages": [{"role": "user", "content": "What is 17+25?"}], "stream": false,
  "options": {"temperature": 0}}'
show --no-buffer "$url/api/generate" -d '{"model": "default", "prompt": "Hello!", "options": {"num_predict": 3}}'
show "$url/api/embed" -d '{"model": "default", "input": ["hello", "goodbye"], "dimensions": 4}'
show "$url/api/embeddings" -d '{"model": "default", "prompt": "hello"}' --output /dev/null --write-out '%{http_code}\n'
show "$url/api/tags"
show "$url/api/ps"
show "$url/api/show" -d '{"model": "default"}' --output /dev/null --write-out '%{http_code}\n'
show "$url/api/version"

# Models that join while the server runs. `--allow-pull` allows it; any other server refuses to pull and to delete.
show "$url/api/pull" -d '{"model": "hf.co/ggml-org/none:Q4_K_M", "stream": false}'
show "$url/api/delete" -X DELETE -d '{"model": "hf.co/ggml-org/none:Q4_K_M"}'

# What Ollama has, and this server has not.
show "$url/api/create" -d '{}'
show "$url/api/copy" -d '{}'
show "$url/api/push" -d '{}'
show "$url/api/blobs/sha256:00" -d '{}'
show "$url/"

# An error has OpenAI's shape, and names the wrong field.
show "$url/v1/completions" -d '{"prompt": "Once upon a time", "temperature": 3}'

# Models on demand: their states, and orders to load and unload one. A server with a single model refuses both.
show "$url/models"
show "$url/models/load" -d '{"model": "default"}'
show "$url/models/unload" -d '{"model": "default"}'

show "$url/slots"
show "$url/slots/queue"

# Slots can be saved with --slot-save-path, properties set with --props, and gaps filled by a model with tokens for them.
show "$url/slots/0" --get -X POST -d action=erase
show "$url/props"
show "$url/props" -d '{}'
show "$url/infill" -d '{
  "input_prefix": "def add(a, b):\n    return ", "input_suffix": "\n", "n_predict": 8,
  "input_extra": [{"filename": "sub.py", "text": "def sub(a, b):\n    return a - b\n"}]
}'

# A stream that goes on without its client: it is found by its name, read again, and ended.
show --no-buffer "$url/v1/completions" -H 'x-conversation-id: sum' -d '{"prompt": "17+25=", "stream": true}'
show "$url/v1/streams/lookup" -d '{"conversation_ids": ["sum"]}'
show "$url/v1/stream" --get -d conv_id=sum -d from=0
show "$url/v1/stream" --get -X DELETE -d conv_id=sum

# The end of reasoning while it is streamed, by the id of the stream's chunks; the stream has `reasoning_control: true`.
show "$url/v1/chat/completions/control" -d '{"id": "chatcmpl-0", "action": "reasoning_end"}'

# LoRA adapters of the model, and their scales for requests that choose none. Without adapters the lists are empty.
show "$url/lora-adapters"
show "$url/lora-adapters" -d '[]'

# The metrics for Prometheus: only their size.
show "$url/metrics" --output /dev/null --write-out '%{http_code}, %{size_download} bytes of metrics'

# The prompts that are cached, for routers in front of several servers. It needs --prefix-secret.
show "$url/prefixes"

# The description of all routes, as OpenAPI: only its size.
show "$url/openapi.json" --output /dev/null --write-out '%{http_code}, %{size_download} bytes'
