"""Configuration: YAML documents with line numbers, and the agent's schema."""
