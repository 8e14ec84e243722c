"""Vedette: an edge inference agent. Subpackages are listed in `agent/README.md`."""

__version__ = "0.1.0"
