"""A loop of the user's own over the network: the client drives, the server's part answers like a layer.

`connect` gives a module that stands for the far part; `RemoteServer` holds that part and yields each batch
whose gradients have reached it. It uses the transport, credentials and checks of all other runs. It must not
know data sets, settings of runs or training modes.
"""
