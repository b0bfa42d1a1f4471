"""What an execution asks of people."""
