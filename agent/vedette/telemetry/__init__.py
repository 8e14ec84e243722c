"""The frame ledger, latency sketches and their summary."""
