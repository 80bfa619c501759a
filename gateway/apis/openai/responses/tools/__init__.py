"""Tools of OpenAI's responses: those that are offered, and the choice among them."""
