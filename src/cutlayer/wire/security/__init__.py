"""Who may talk to whom: certificates, tokens, TLS, and files that only their owner may read.

It must not know runs, messages or streams.
"""
