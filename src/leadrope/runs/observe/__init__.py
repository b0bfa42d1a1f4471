"""Those who look on: notifications, webhooks, traces and log lines."""
