"""One run, from request to result. No database, no web: this is the library."""
