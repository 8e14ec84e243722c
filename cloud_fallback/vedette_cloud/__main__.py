"""`python -m vedette_cloud`."""

from __future__ import annotations

from vedette_cloud.cli import main

if __name__ == "__main__":
    main()
