"""Examples of sums of two numbers below 100, as equations and in words."""

from engine.embedded.training.corpus.draw import Draw
from engine.embedded.training.corpus.example import Completion, Exchange, exchange
from engine.embedded.training.corpus.wordings import ORDER_ENDS, POLITE_STARTS, QUESTION_ENDS, lines


def completion(draw: Draw) -> Completion:
    """Return an incomplete equation and its result."""
    a, b = draw.pair()
    return Completion(f"{a}+{b}=", str(a + b))


def question(draw: Draw, a: int, b: int) -> str:
    """Return one of many questions for the sum of `a` and `b`."""
    bodies, ends = draw.any(((lines("sum_questions"), QUESTION_ENDS), (lines("sum_orders"), ORDER_ENDS)))
    return draw.sentence(POLITE_STARTS, bodies, ends).replace("{a}", str(a)).replace("{b}", str(b))


def asked(draw: Draw) -> Exchange:
    """Return a question for a sum, and the equation as its answer."""
    a, b = draw.pair()
    return exchange(question(draw, a, b), f"{a}+{b}={a + b}")
