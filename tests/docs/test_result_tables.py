"""Tables of results come from the records (`test_site.py` compares the pages with them)."""

import re

from website.result_tables import PAGES, TABLES, rewritten


def test_the_pages_have_every_table() -> None:
    text = "".join(page.read_text("utf-8") for page in PAGES)
    assert sorted(re.findall(r"<!-- table: ([\w-]+) -->", text)) == sorted(TABLES)
    assert text.count("<!-- end of table -->") == len(TABLES)


def test_a_figure_that_was_typed_is_found() -> None:
    text = PAGES[-1].read_text("utf-8")
    typed = text.replace("| none | 1 | 1 |", "| none | 1 | 2 |", 1)
    assert typed != text
    assert rewritten(typed) == text
