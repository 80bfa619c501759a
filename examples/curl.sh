#!/usr/bin/env bash
# Every route, by curl. Usage: examples/curl.sh [URL of a running server]
set -euo pipefail
url=${1:-http://localhost:8000}

show() { printf '\n$ curl %s\n' "$*"; curl --silent --show-error "$@"; printf '\n'; }

show "$url/health"
show "$url/v1/models"

# A whole answer.
show "$url/v1/completions" -d '{"prompt": "Once upon a time", "max_tokens": 32, "temperature": 0}'

# Two answers to each of two prompts, as they come, with what they cost at the end.
show --no-buffer "$url/v1/completions" -d '{
  "prompt": ["Once upon a time", "The dog"], "n": 2, "max_tokens": 8, "seed": 7,
  "stream": true, "stream_options": {"include_usage": true}
}'

# The simple route, whole and as it comes.
show "$url/generate" -d '{"prompt": "Once upon a time", "max_tokens": 32}'
show --no-buffer "$url/generate" -d '{"prompt": "Once upon a time", "max_tokens": 8, "stream": true}'

# What is wrong is said in OpenAI's shape, with the field at fault.
show "$url/v1/completions" -d '{"prompt": "Once upon a time", "temperature": 3}'

show "$url/slots"
