"""What crosses a process or machine border: standard library and msgspec only."""
