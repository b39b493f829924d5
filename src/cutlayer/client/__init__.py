"""A client: its private data, its half of the model, and its connection to the server.

`SplitClient` answers messages wherever it runs; `join` takes it to a server over the network. A client must
not know how the server trains, and imports no code that a server names.
"""
