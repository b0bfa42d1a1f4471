"""Many commands below one guardian: a server inside the sandbox with a worker for each command that runs."""
