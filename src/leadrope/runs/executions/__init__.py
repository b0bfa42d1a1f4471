"""Executions of workflows in the store: journal, queue, events and controls."""
