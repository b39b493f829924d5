"""Reports: the records of runs and the results of experiments as tables, plots and one HTML page.

A report only reads what runs and experiments have written. It trains nothing and fetches nothing.
"""
