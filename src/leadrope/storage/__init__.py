"""Databases: a file that is opened, migrated, written by one thread and watched for changes. Knows no table."""
