"""Inference engines behind one port; the adapters are named only in `registry`."""
