"""The command line: options, the session, what a person reads."""
