"""Asks the large model, in a process of its own: clients, budgets, audits, offline queue, training set."""
