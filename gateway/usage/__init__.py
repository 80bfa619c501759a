"""Usage of the server: one row for each request, in an SQL database."""
