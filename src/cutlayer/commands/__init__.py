"""The commands of the `cutlayer` program, one idea a file. Each file has a `register(app)`."""
