"""Bridges to other frameworks, one a file, each with an extra of its own. Nothing in cutlayer imports them.

They use cutlayer as anybody would, and must not change what it does.
"""
