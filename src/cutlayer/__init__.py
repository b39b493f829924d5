"""Train and run split neural networks with small traffic at the cut."""
