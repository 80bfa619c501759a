"""OpenAI's SDK against a local server: answers that are objects, never text to take apart.

While the model writes, the server lets through only what fits the schema. So every model keeps the form, however
small it is. What it writes into the form is its own: a tiny one judges no soup.

Needs: pip install openai
Usage: python examples/openai_sdk_structured.py [URL of a running server]
"""

import sys
from typing import Literal

from openai import OpenAI
from pydantic import BaseModel, Field

url = sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000"
client = OpenAI(base_url=f"{url}/v1", api_key="none needed")
model = client.models.list().data[0].id


class Review(BaseModel):
    """What a guest thinks."""

    mood: Literal["happy", "angry"]
    stars: int = Field(ge=1, le=5)


question = "What does this guest think? The soup was cold, but the waiter made up for it."

completion = client.chat.completions.parse(
    model=model, messages=[{"role": "user", "content": question}], response_format=Review, temperature=0
)
print(repr(completion.choices[0].message.parsed))

response = client.responses.parse(model=model, input=question, text_format=Review, temperature=0)
print(repr(response.output_parsed))

# Beyond OpenAI's fields: an answer can be one of some choices, match an expression, or follow a grammar.
for form in ({"guided_choice": ["yes", "no"]}, {"guided_regex": r"\d+\+\d+=\d+"}):
    answer = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "What is 17 plus 25?"}],
        temperature=0,
        extra_body=form,
    )
    print(answer.choices[0].message.content)
