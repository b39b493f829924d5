"""The status of a run while it goes on, in files: who is connected, how far it is, what happened."""
