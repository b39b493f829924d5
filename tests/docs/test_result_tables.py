"""The tables of the results page come from the records (`test_site.py` compares the page with them)."""

import re

from website.result_tables import PAGE, TABLES, rewritten


def test_the_page_has_every_table() -> None:
    text = PAGE.read_text("utf-8")
    assert sorted(re.findall(r"<!-- table: ([\w-]+) -->", text)) == sorted(TABLES)
    assert text.count("<!-- end of table -->") == len(TABLES)


def test_a_figure_that_was_typed_is_found() -> None:
    text = PAGE.read_text("utf-8")
    typed = text.replace("| none | 1 | 1 |", "| none | 1 | 2 |", 1)
    assert typed != text
    assert rewritten(typed) == text
