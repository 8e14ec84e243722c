"""The `vedette-agent` command line; one module per noun."""
