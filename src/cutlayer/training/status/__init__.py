"""The status of a run while it goes on: who is connected, how far it is, what happened, on disk and shown."""
