from engine.core.drafter import INDEXED_AT_ONCE, Drafter


def test_what_followed_the_last_three_tokens_is_the_guess() -> None:
    assert Drafter([]).guess([1, 2, 3, 4, 5, 6, 1, 2, 3], 2) == [4, 5]


def test_the_latest_place_counts() -> None:
    assert Drafter([]).guess([1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3], 1) == [5]


def test_nothing_is_guessed_where_nothing_is_repeated() -> None:
    drafter = Drafter([])
    assert drafter.guess([1], 4) == []
    assert drafter.guess([1, 2, 3, 4, 5], 4) == []


def test_a_text_that_goes_round_is_guessed_to_go_on() -> None:
    assert Drafter([]).guess([7, 1, 2, 1, 2, 1], 5) == [2, 1, 2, 1, 2]


def test_tokens_that_come_later_count_too() -> None:
    drafter = Drafter([])
    tokens = [1, 2, 3, 4]
    assert drafter.guess(tokens, 2) == []
    tokens += [9, 1, 2, 3]
    assert drafter.guess(tokens, 2) == [4, 9]
    tokens += [4]
    assert drafter.guess(tokens, 2) == [9, 1]


def test_a_long_prompt_is_taken_note_of_in_parts() -> None:
    tokens = [*range(3 * INDEXED_AT_ONCE), 2 * INDEXED_AT_ONCE, 2 * INDEXED_AT_ONCE + 1, 2 * INDEXED_AT_ONCE + 2]
    drafter = Drafter([])
    assert [drafter.guess(tokens, 1) for _ in range(3)] == [[], [], [2 * INDEXED_AT_ONCE + 3]]


def test_a_prediction_is_a_place_to_look() -> None:
    drafter = Drafter([1, 2, 3, 4, 5])
    assert drafter.guess([8, 9], 3) == []
    assert drafter.guess([8, 9, 1, 2, 3], 3) == [4, 5], "it ends where the prediction does"
    assert drafter.guess([8, 9, 1, 2, 3, 4, 5], 3) == []


def test_the_chance_follows_what_was_drawn_whether_or_not_the_guess_was_computed() -> None:
    drafter = Drafter([])
    tokens = [1, 2, 3, 1, 2, 3]
    drafter.guess(tokens, 4)
    assert drafter.chance == 0
    chances = []
    for token in (1, 2, 3, 1, 2):
        tokens.append(token)
        drafter.guess(tokens, 4)
        chances.append(drafter.chance)
    assert chances == sorted(chances)
    assert chances[-1] > 0.7
    tokens += [3, 9]  # one right, one wrong
    drafter.guess(tokens, 4)
    assert drafter.chance < chances[-1]


def test_only_guesses_tell_of_the_chance() -> None:
    drafter = Drafter([])
    tokens = [1, 2, 3, 1, 2, 3]
    drafter.guess(tokens, 4)
    drafter.guess([*tokens, 1], 4)
    before = drafter.chance
    drafter = Drafter([])
    assert before > 0
    drafter.guess([1, 2, 3], 4)
    drafter.guess([1, 2, 3, 4], 4)
    assert drafter.chance == 0
