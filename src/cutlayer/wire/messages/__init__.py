"""The messages of a run and their bytes: `types.py` within a stream, `*.proto` around it.

Messages carry frames and packed labels as bytes. This room must not know what is in them.
"""
