"""One run as one HTML page."""
