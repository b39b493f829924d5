"""The paper's results as experiments: cells that are computed once, and what they add up to."""
