"""Whole sections of elements: what they must meet, and what decodes them."""
