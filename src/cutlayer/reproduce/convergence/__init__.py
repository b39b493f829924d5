"""Fig. 3 and Table 1: a grid of training runs, one for each cut, policy and seed, and two views of it.

`grid` lists the runs, `process_pool` trains them, `accuracy` and `traffic` evaluate the records. The views
never train.
"""
