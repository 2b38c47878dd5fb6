"""Bad inputs as data: a table of calls per interface. Each call must end in one clear message, and write nothing."""
