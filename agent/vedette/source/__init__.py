"""Frame sources: parsers (pure) and the capture child."""
