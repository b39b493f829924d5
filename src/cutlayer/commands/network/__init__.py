"""Commands of a party on the network: serve, join, aggregate, serve-inference, predict, certs.

They parse flags, call `cutlayer.training.serve`, `cutlayer.client` or `cutlayer.inference`, and print. They
know addresses and files of credentials, and nothing of messages, streams or the steps of a run.
"""
