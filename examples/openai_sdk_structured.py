"""Use OpenAI's SDK for structured outputs of a local server: answers are objects, so that no text has to be parsed.

During generation, the server allows only tokens that match the schema, so that the answers of every model are valid,
even of a small one. The values depend on the model: a tiny model cannot judge a review.

Needs: pip install openai
Usage: python examples/openai_sdk_structured.py [URL of a running server]
"""

import sys
from typing import Literal

from openai import OpenAI
from pydantic import BaseModel, Field

url = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"
client = OpenAI(base_url=f"{url}/v1", api_key="not needed")
model = client.models.list().data[0].id


class Review(BaseModel):
    """Opinion of a guest."""

    mood: Literal["happy", "angry"]
    stars: int = Field(ge=1, le=5)


question = "What does this guest think? The soup was cold, but the waiter made up for it."

completion = client.chat.completions.parse(
    model=model, messages=[{"role": "user", "content": question}], response_format=Review, temperature=0
)
print(repr(completion.choices[0].message.parsed))

response = client.responses.parse(model=model, input=question, text_format=Review, temperature=0)
print(repr(response.output_parsed))

# Beyond OpenAI's fields, an answer can be one of several choices, match a regular expression, or follow a grammar.
for form in ({"guided_choice": ["yes", "no"]}, {"guided_regex": r"\d+\+\d+=\d+"}):
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "What is 17 plus 25?"}],
        temperature=0,
        extra_body=form,
    )
    print(answer.choices[0].message.content)
