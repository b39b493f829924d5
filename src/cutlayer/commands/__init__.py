"""The commands of `cutlayer`, one a file. Each has `register(app)`, which adds it to a typer app."""
