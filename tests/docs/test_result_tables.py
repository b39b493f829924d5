"""The tables of the results page are those of the records."""

import re

from website.result_tables import PAGE, TABLES, rewritten


def test_the_page_has_every_table_with_the_figures_of_the_records() -> None:
    text = PAGE.read_text()
    assert sorted(re.findall(r"<!-- table: ([\w-]+) -->", text)) == sorted(TABLES)
    assert text.count("<!-- end of table -->") == len(TABLES)
    assert rewritten(text) == text, "run: python -m website.result_tables"


def test_a_figure_that_was_typed_is_found() -> None:
    text = PAGE.read_text()
    place = text.index("| none |", text.index("<!-- table: testbed -->"))
    assert rewritten(text[:place] + "| some |" + text[place + 8 :]) == text
