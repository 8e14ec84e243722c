"""The doors of a running daemon."""
