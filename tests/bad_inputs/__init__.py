"""Bad inputs as data: for each surface a table of calls that must end in one clear sentence, and write nothing."""
