"""The `vedette-fleet` command line; one module per noun."""
