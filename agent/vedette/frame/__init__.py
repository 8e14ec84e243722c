"""Frames between processes: descriptors and the shared-memory ring."""
