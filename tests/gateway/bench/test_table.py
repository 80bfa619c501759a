"""The table printed in the terminal."""

from dataclasses import replace

from gateway.bench import table
from gateway.bench.arguments import read_arguments
from gateway.bench.outcome import Failure, Outcome, Usage
from gateway.bench.summary import FailureCount, summarise

GOOD = Outcome(0.0, 2.0, ((0.5, 1), (1.5, 1)), Usage(16, 2))
SUMMARY = summarise(8, [GOOD, GOOD])


def test_a_row_is_aligned_with_its_heads() -> None:
    groups, names = table.head().split("\n")
    row = table.row(SUMMARY)
    assert row.split() == ["8", "2/2", "2.00", *["500.0"] * 3, *["1000"] * 3, *["2.00"] * 3]
    assert len(row) == len(names)
    assert names.split() == ["clients", "done", "tokens/s", *["p50", "p90", "p99"] * 3]
    assert [groups.index(word) // 27 for word in ("to first", "inter-token", "end to end")] == [1, 2, 3]


def test_a_missing_measurement_is_a_dash() -> None:
    row = table.row(summarise(1, [Outcome(0.0, 0.0, failure=Failure("cut", "x"))]))
    assert row.split() == ["1", "0/1", *["-"] * 10]


def test_a_usual_summary_has_no_notes() -> None:
    assert list(table.notes(SUMMARY)) == []


def test_notes_name_the_counter_of_tokens_and_shared_chunks() -> None:
    counted = summarise(1, [replace(GOOD, usage=None)])
    assert list(table.notes(counted)) == ["the server reported no usage: each chunk counts as one token"]
    (note,) = table.notes(summarise(1, [replace(GOOD, usage=Usage(16, 8))]))
    assert note == "4.0 tokens per read share the gap between two reads: p50 1000.0, p99 1000.0 ms"


def test_failures_are_counted_by_kind_with_their_most_frequent_message() -> None:
    failures = [
        FailureCount("status 429", "full", 5),
        FailureCount("cut", "it ended", 2),
        FailureCount("status 429", "very full", 1),
    ]
    assert list(table.notes(replace(SUMMARY, failures=failures))) == [
        "6 failed, status 429: full",
        "2 failed, cut: it ended",
    ]


def test_the_title_names_the_model_the_server_and_the_workload() -> None:
    given = read_arguments(["--seed", "7", "--endpoint", "chat", "--no-stream", "--shared-prefix", "512"], {})
    assert table.title(given, "tiny") == (
        "tiny at http://127.0.0.1:8000/v1, chat whole; 72 requests per stage; prompts of about 16 tokens after a "
        "common prefix of 512; at most 50 new tokens; seed 7"
    )


def test_the_title_counts_in_the_singular_and_in_the_plural() -> None:
    given = read_arguments(["--requests", "1", "--max-tokens", "1"], {})
    assert "; 1 request per stage; " in (title := table.title(given, "tiny"))
    assert "; at most 1 new token; " in title
