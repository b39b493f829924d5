"""A load generator: thousands of light clients that speak the real protocol and compute nothing."""
