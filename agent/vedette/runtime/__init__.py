"""The daemon: children, results and the composition root."""
