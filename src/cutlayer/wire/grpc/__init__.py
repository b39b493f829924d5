"""The network: streams between clients and server over gRPC, retransmission, membership, and their failures.

It moves messages and knows who is connected. It must not know what the messages mean to training.
"""
