from engine.core.drafts.drafter import INDEXED_AT_ONCE, MOST_SLOTS, NgramDrafter


def test_the_draft_repeats_the_tokens_after_the_last_trigram() -> None:
    assert NgramDrafter([]).draft([1, 2, 3, 4, 5, 6, 1, 2, 3], 2) == [4, 5]


def test_the_latest_occurrence_of_an_ngram_counts() -> None:
    assert NgramDrafter([]).draft([1, 2, 3, 4, 1, 2, 3, 5, 1, 2, 3], 1) == [5]


def test_a_text_without_a_repetition_gets_no_draft() -> None:
    drafter = NgramDrafter([])
    assert drafter.draft([1], 4) == []
    assert drafter.draft([1, 2, 3, 4, 5], 4) == []


def test_the_draft_of_a_periodic_text_goes_on_with_the_period() -> None:
    assert NgramDrafter([]).draft([7, 1, 2, 1, 2, 1], 5) == [2, 1, 2, 1, 2]


def test_tokens_added_between_two_drafts_are_indexed() -> None:
    drafter = NgramDrafter([])
    tokens = [1, 2, 3, 4]
    assert drafter.draft(tokens, 2) == []
    tokens += [9, 1, 2, 3]
    assert drafter.draft(tokens, 2) == [4, 9]
    tokens += [4]
    assert drafter.draft(tokens, 2) == [9, 1]


def test_a_long_prompt_is_indexed_in_parts() -> None:
    tokens = [*range(3 * INDEXED_AT_ONCE), 2 * INDEXED_AT_ONCE, 2 * INDEXED_AT_ONCE + 1, 2 * INDEXED_AT_ONCE + 2]
    drafter = NgramDrafter([])
    assert [drafter.draft(tokens, 1) for _ in range(3)] == [[], [], [2 * INDEXED_AT_ONCE + 3]]


def test_a_prediction_is_a_source_of_drafts() -> None:
    drafter = NgramDrafter([1, 2, 3, 4, 5])
    assert drafter.draft([8, 9], 3) == []
    assert drafter.draft([8, 9, 1, 2, 3], 3) == [4, 5], "it ends where the prediction does"
    assert drafter.draft([8, 9, 1, 2, 3, 4, 5], 3) == []


def test_the_acceptance_rate_follows_the_drawn_tokens_whether_or_not_a_draft_was_computed() -> None:
    drafter = NgramDrafter([])
    tokens = [1, 2, 3, 1, 2, 3]
    drafter.draft(tokens, 4)
    assert drafter.acceptance_rate == 0
    rates = []
    for token in (1, 2, 3, 1, 2):
        tokens.append(token)
        drafter.draft(tokens, 4)
        rates.append(drafter.acceptance_rate)
    assert rates == sorted(rates)
    assert rates[-1] > 0.7
    tokens += [3, 9]  # one right, one wrong
    drafter.draft(tokens, 4)
    assert drafter.acceptance_rate < rates[-1]


def test_what_follows_a_wrong_guess_does_not_count() -> None:
    drafter = NgramDrafter([])
    tokens = [1, 2, 3, 1, 2, 3]
    assert drafter.draft(tokens, 4) == [1, 2, 3, 1]
    drafter.draft([*tokens, 9, 2, 3, 1], 4)
    assert drafter.acceptance_rate == 0, "it could not have been accepted"


def test_discarded_tokens_can_still_be_repeated_whether_or_not_they_were_indexed() -> None:
    drafter = NgramDrafter([])
    tokens = [1, 2, 3, 4, 5, 6]
    drafter.draft(tokens, 3)
    tokens += [7, 8, 9]
    drafter.discard(tokens, 7)
    assert drafter.draft([1, 9, 2, 3, 4], 3) == [5, 6, 7]


def test_a_text_without_an_end_takes_bounded_memory() -> None:
    drafter, tokens = NgramDrafter([]), list(range(40))
    for following in range(40, 40 + 20 * 10 * MOST_SLOTS, 20):
        drafter.discard(tokens, 20)
        tokens = [*tokens[20:], *range(following, following + 20)]
        assert drafter.draft(tokens, 4) == []
        assert len(drafter._follows) <= len(drafter._text) <= (MOST_SLOTS + 1) * len(tokens)
    assert drafter.draft([*tokens, *tokens[:3]], 4) == tokens[3:7]


def test_a_draft_is_compared_once_also_where_tokens_are_discarded_before_the_next_one() -> None:
    drafter = NgramDrafter([])
    tokens = [1, 2, 3, 1, 2, 3]
    assert drafter.draft(tokens, 4) == [1, 2, 3, 1]
    tokens += [1, 2]
    drafter.discard(tokens, 2)
    rate = drafter.acceptance_rate
    drafter.draft([*tokens[:1], *tokens[3:], 3], 4)
    assert drafter.acceptance_rate == rate > 0, "the next token was right"


def test_tokens_without_a_draft_leave_the_acceptance_rate() -> None:
    drafter = NgramDrafter([])
    tokens = [1, 2, 3, 1, 2, 3]
    drafter.draft(tokens, 4)
    drafter.draft([*tokens, 1], 4)
    before = drafter.acceptance_rate
    drafter = NgramDrafter([])
    assert before > 0
    drafter.draft([1, 2, 3], 4)
    drafter.draft([1, 2, 3, 4], 4)
    assert drafter.acceptance_rate == 0
