"""The settings of a run: their schema, named recipes, and the way from files and flags to one `Config`.

Settings are data. Nothing here loads data, builds a model or opens a connection; it asks codecs, partitions,
rates and links only whether what is written is valid.
"""
