"""Observers of runs: notifications, webhooks, traces and log lines."""
