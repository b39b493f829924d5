"""The runtime: the only place that sees codecs, split models and the wire together."""
