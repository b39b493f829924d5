"""The split server: its half of the model, one step at a time, in every mode and on every transport.

It reaches clients only through a `Transport`. It must not know their data, settings files or run directories.
"""
