"""`python -m vedette` is `vedette-agent`."""

from __future__ import annotations

from vedette.cli.main import main

if __name__ == "__main__":
    main()
