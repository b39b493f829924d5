"""Commands on models, data and runs in one process: cuts, advise, partition, recipes, train, eval, ...

They parse flags, call `cutlayer.training`, `cutlayer.report` or `cutlayer.tools`, and print. They know
nothing of sockets, certificates or remote clients.
"""
