"""Rate control of the smashed data: how many bits an element a client sends at each step.

A rate is fixed (`base`), follows a schedule over the run (`scheduled`) or the client's own link (`adaptive`).
A rate chooses codecs and knows nothing of models, data, settings or who asks.
"""
