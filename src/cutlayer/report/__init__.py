"""Records and results as tables, plots and one page."""
