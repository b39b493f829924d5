"""Sections of tokens: activations whose last dimension counts channels, which have no spatial neighbours."""
