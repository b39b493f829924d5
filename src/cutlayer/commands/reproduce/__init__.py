"""`cutlayer reproduce`: one command for each of the paper's figures, tables and theorems.

They parse flags, call `cutlayer.reproduce`, and print tables and claims. They know nothing of how a result is
measured.
"""
