"""What the agent knows of itself: ledger, latency sketches, windows, board, reports, metrics."""
