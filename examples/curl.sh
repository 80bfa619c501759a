#!/usr/bin/env bash
# Every route, by curl. Needs: curl and nothing else.
# Usage: examples/curl.sh [URL of a running server]
set -euo pipefail
url=${1:-http://localhost:8000}

show() { printf '\n$ curl %s\n' "$*"; curl --silent --show-error "$@"; printf '\n'; }

show "$url/health"
show "$url/v1/models"

# A chat: whole, and as it comes, with what it cost at the end.
show "$url/v1/chat/completions" -d '{
  "messages": [{"role": "user", "content": "What is 17 plus 25?"}], "temperature": 0
}'
show --no-buffer "$url/v1/chat/completions" -d '{
  "messages": [{"role": "user", "content": "Hello!"}], "temperature": 0,
  "stream": true, "stream_options": {"include_usage": true}
}'

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

# An answer that fits a schema, and one that matches an expression, whatever the model would like to say.
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

# A response: the server keeps it, until it is deleted. The next one names it, and sends only what is new.
told=$(show "$url/v1/responses" -d '{"input": "Hello!", "temperature": 0}')
printf '%s\n' "$told"
id=$(grep --only-matching 'resp_[0-9a-f]*' <<<"$told")
show --no-buffer "$url/v1/responses" -d '{
  "input": "What is 17 plus 25?", "previous_response_id": "'"$id"'", "temperature": 0, "stream": true
}'
show "$url/v1/responses/$id" -X DELETE

# A prompt that goes on: whole, and two answers to each of two prompts, as they come.
show "$url/v1/completions" -d '{"prompt": "17+25=", "max_tokens": 32, "temperature": 0}'
show --no-buffer "$url/v1/completions" -d '{
  "prompt": ["Once upon a time", "The dog"], "n": 2, "max_tokens": 8, "seed": 7,
  "stream": true, "stream_options": {"include_usage": true}
}'

# The simple route, whole and as it comes.
show "$url/generate" -d '{"prompt": "Once upon a time", "max_tokens": 32}'
show --no-buffer "$url/generate" -d '{"prompt": "Once upon a time", "max_tokens": 8, "stream": true}'

# Vectors, fewer numbers each; tokens and back; the prompt that a chat becomes.
show "$url/v1/embeddings" -d '{"input": ["hello", "goodbye"], "dimensions": 4}'
show "$url/tokenize" -d '{"content": "17+25=42", "with_pieces": true}'
show "$url/apply-template" -d '{"messages": [{"role": "user", "content": "Hello!"}]}'

# What is wrong is said in OpenAI's shape, with the field at fault.
show "$url/v1/completions" -d '{"prompt": "Once upon a time", "temperature": 3}'

show "$url/slots"
