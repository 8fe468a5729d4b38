"""Tables and what is public of them: schema, constraints, times, files."""
