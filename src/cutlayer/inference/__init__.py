"""Split inference: the client's half near the data, the server's half behind gRPC, exports and predictions.

It uses trained runs. It must not know how they are trained, nor commands and reports.
"""
