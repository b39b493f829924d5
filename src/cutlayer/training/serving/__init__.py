"""What `serve` is made of: the server of a run over the network, and whether its settings can be served."""
