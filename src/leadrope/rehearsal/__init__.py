"""Stand-ins for tests and the demo: a scripted model server and a scripted agent executable."""
