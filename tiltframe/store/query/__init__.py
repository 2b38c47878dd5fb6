"""Queries of a store: the query as an object, its plan, its execution, joins, and the form of results."""
