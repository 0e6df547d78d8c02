"""Figures on the page on choosing an algorithm are those that benchmarks have published."""

from __future__ import annotations

import pytest

from tests.published import Table, first_number
from tests.quoted import PAGE, QUOTES, Quote

TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("quote", QUOTES, ids=lambda quote: quote.figures.__name__)
def test_the_page_says_what_was_measured(quote: Quote) -> None:
    assert str(quote) in TEXT, "python -m tests.quoted puts the published figures into the page"


def test_words_are_found_with_other_figures() -> None:
    quote = Quote("in {} s | {} %", lambda: ("1", "2"))
    assert quote.pattern.fullmatch("in 0.35 to 1,000 s | 17 %")
    assert quote.pattern.search("in 3 | 4 s | 17 %") is None
    assert (
        Quote("{} of it", lambda: ("5",)).pattern.sub("5 of it", "| 1.25 of it |") == "| 5 of it |"
    )


def test_cells_are_found_by_the_beginning_of_a_line() -> None:
    table = Table(["data", "s", "s"], [["mnist", "> 21.4", "1,250"], ["noise", "-", "3 of 5"]])
    assert table.number("mnist", "s") == 21.4
    assert table.number("mnist", "s", nth=1) == 1250
    assert table.numbers("s", having="mnist") == [21.4]
    with pytest.raises(AssertionError, match="no number"):
        table.number("noise", "s")
    assert first_number("-0.11 % (-1.59)") == -0.11
