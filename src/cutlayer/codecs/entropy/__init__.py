"""What `ems` is made of beside its work on elements: shapes, models, statistics, sections, the search."""
